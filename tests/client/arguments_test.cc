// SPDX-License-Identifier: Apache-2.0

#include "client/arguments.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Sets an enum of the C ABI to a number that need not match any of its enumerators, as a C caller can.
template <typename Enum>
void SetRaw(Enum* value, int raw) {
  std::memcpy(value, &raw, sizeof(raw));
}

constexpr Caller kCaller = {.rank = 2, .limits = {.warning = absl::Seconds(7), .deadline = absl::Seconds(70)}};

template <typename Args>
absl::StatusOr<Submission> Converted(const Args* args) {
  Submission submission;
  RONDA_RETURN_IF_ERROR(ToSubmission(args, kCaller, &submission));
  return submission;
}

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() {
    const ronda_tensor tensor = {"conv1/weight", RONDA_FLOAT32, 2, shape_};
    allreduce_.tensor = tensor;
    allreduce_.input = buffer_;
    allreduce_.output = buffer_;
  }

  // Expects that the arguments are rejected with a text that contains all of `parts`.
  void ExpectAllreduceRefused(const std::vector<std::string>& parts) {
    const auto submission = Converted(&allreduce_);
    EXPECT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(submission.status().message()), HasSubstr(part));
    }
  }

  int64_t shape_[2] = {3, 4};
  float buffer_[24] = {};
  ronda_allreduce_args allreduce_ = RONDA_ALLREDUCE_ARGS_INIT;
};

TEST_F(ArgumentsTest, AllreduceCarriesEverythingOver) {
  allreduce_.output = buffer_ + 12;
  allreduce_.op = RONDA_MAX;
  allreduce_.compression = RONDA_COMPRESSION_BF16;
  allreduce_.prescale = 0.5;
  allreduce_.postscale = 2;
  const auto submission = Converted(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.name, "conv1/weight");
  EXPECT_EQ(submission->request.op, OpType::kAllreduce);
  EXPECT_EQ(submission->request.dtype, DType::kFloat32);
  EXPECT_EQ(submission->request.shape, (Shape{3, 4}));
  EXPECT_EQ(submission->input, buffer_);
  EXPECT_EQ(submission->output, buffer_ + 12);
  EXPECT_EQ(submission->request.reduction, Reduction::kMax);
  EXPECT_EQ(submission->request.wire, WireFormat::kBfloat16);
  EXPECT_EQ(submission->request.prescale, 0.5);
  EXPECT_EQ(submission->request.postscale, 2);
  EXPECT_EQ(submission->request.process_set, kGlobalProcessSet);
  EXPECT_FALSE(submission->request.limits.has_value());
  EXPECT_EQ(submission->request.overflow, TensorRequest::Overflow::kIgnored);
  EXPECT_EQ(submission->error_feedback, Submission::ErrorFeedback::kOff);
}

TEST_F(ArgumentsTest, ReductionsCarryWhatIsAskedBeyondTheNumbers) {
  allreduce_.error_feedback = 1;
  allreduce_.detect_overflow = 2;
  allreduce_.call.process_set = 5;
  const auto submission = Converted(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->error_feedback, Submission::ErrorFeedback::kOn);
  EXPECT_EQ(submission->request.overflow, TensorRequest::Overflow::kDetected);
  EXPECT_EQ(submission->request.process_set, 5u);
}

TEST_F(ArgumentsTest, ALimitThatIsNotSetIsTheJobs) {
  allreduce_.call.deadline_s = 0.5;
  EXPECT_EQ(Converted(&allreduce_)->request.limits,
            (WaitLimits{.warning = absl::Seconds(7), .deadline = absl::Milliseconds(500)}));
  allreduce_.call = RONDA_CALL_OPTIONS_INIT;
  allreduce_.call.warning_s = -1;
  EXPECT_EQ(Converted(&allreduce_)->request.limits,
            (WaitLimits{.warning = absl::InfiniteDuration(), .deadline = absl::Seconds(70)}));
  allreduce_.call.warning_s = std::nan("");
  ExpectAllreduceRefused({"'conv1/weight'", "call.warning_s is not a number"});
}

TEST_F(ArgumentsTest, TensorsOfAGpuBringTheirStreamAlong) {
  EXPECT_EQ(Converted(&allreduce_)->request.memory, Memory::kHost);
  int stream = 0;
  allreduce_.call.memory = RONDA_MEMORY_CUDA;
  EXPECT_EQ(Converted(&allreduce_)->request.memory, Memory::kCuda);
  EXPECT_EQ(Converted(&allreduce_)->stream, nullptr) << "the default stream";
  allreduce_.call.stream = &stream;
  EXPECT_EQ(Converted(&allreduce_)->stream, &stream);
}

TEST_F(ArgumentsTest, AMemoryThatThereIsNotAndAStreamThatNobodyWaitsForAreRefused) {
  int stream = 0;
  allreduce_.call.stream = &stream;
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "call.stream", "RONDA_MEMORY_CUDA"});
  allreduce_.call.stream = nullptr;
  for (const int raw : {-1, 2}) {
    SetRaw(&allreduce_.call.memory, raw);
    ExpectAllreduceRefused({"'conv1/weight'", "call.memory " + std::to_string(raw), "0 to 1"});
  }
}

TEST_F(ArgumentsTest, AScaleOfZeroMeansNone) {
  allreduce_.prescale = 0;
  allreduce_.postscale = 0;
  const auto submission = Converted(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.prescale, 1);
  EXPECT_EQ(submission->request.postscale, 1);
}

TEST_F(ArgumentsTest, AScalarHasNoShape) {
  allreduce_.tensor.ndim = 0;
  allreduce_.tensor.shape = nullptr;
  const auto submission = Converted(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.shape, Shape{});
}

TEST_F(ArgumentsTest, NullStructsAreNamed) {
  const std::string message(Converted(static_cast<ronda_allreduce_args*>(nullptr)).status().message());
  EXPECT_THAT(message, HasSubstr("ronda_allreduce_args is NULL"));
}

TEST_F(ArgumentsTest, AForgottenStructSizeIsExplained) {
  allreduce_.struct_size = 0;
  ExpectAllreduceRefused({"struct_size is 0", "RONDA_ALLREDUCE_ARGS_INIT"});
  allreduce_.struct_size = sizeof(allreduce_) - 1;
  ExpectAllreduceRefused({"struct_size is"});
  allreduce_.struct_size = std::numeric_limits<size_t>::max();
  ExpectAllreduceRefused({"struct_size is"});
}

// The struct of a program built with a later ronda.h, which has one more field.
struct LongerArgs {
  ronda_allreduce_args known;
  int64_t added = 0;
};

TEST_F(ArgumentsTest, ALongerStructIsAcceptedUnlessItsNewFieldsAreUsed) {
  LongerArgs longer = {allreduce_, 0};
  longer.known.struct_size = sizeof(longer);
  EXPECT_TRUE(Converted(&longer.known).ok());
  longer.added = 1;
  const auto submission = Converted(&longer.known);
  EXPECT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(submission.status().message()), HasSubstr("newer ronda.h"));
}

// In the first version, which did not support GPUs, the struct ended before the field `memory`. The library must not
// read beyond the struct.
TEST_F(ArgumentsTest, AStructOfTheFirstVersionIsOnHostMemory) {
  allreduce_.struct_size = offsetof(ronda_allreduce_args, call) + offsetof(ronda_call_options, memory);
  allreduce_.call.process_set = 5;
  SetRaw(&allreduce_.call.memory, 77);
  allreduce_.call.stream = buffer_;
  const auto submission = Converted(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.process_set, 5u);
  EXPECT_EQ(submission->request.memory, Memory::kHost);
  EXPECT_EQ(submission->stream, nullptr);
  allreduce_.struct_size += sizeof(int);
  ExpectAllreduceRefused({"struct_size is"});
}

TEST_F(ArgumentsTest, NamesAreChecked) {
  allreduce_.tensor.name = nullptr;
  EXPECT_EQ(Converted(&allreduce_)->request.name, "") << "the session makes it up";
  allreduce_.tensor.name = "";
  ExpectAllreduceRefused({"allreduce", "tensor.name is empty"});
  const std::string longest(RONDA_MAX_NAME_LENGTH, 'x');
  allreduce_.tensor.name = longest.c_str();
  EXPECT_TRUE(Converted(&allreduce_).ok());
  const std::string too_long = longest + "x";
  allreduce_.tensor.name = too_long.c_str();
  ExpectAllreduceRefused({"xxx...' is longer than 1024 bytes"});
  allreduce_.tensor.name = "caf\xe9";
  ExpectAllreduceRefused({"not UTF-8"});
  allreduce_.tensor.name = "ronda/barrier/1";
  ExpectAllreduceRefused({"'ronda/barrier/1'", "Ronda itself"});
}

TEST_F(ArgumentsTest, UnknownEnumeratorsAreNamed) {
  SetRaw(&allreduce_.tensor.dtype, 13);
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "tensor.dtype 13", "0 to 12"});
  SetRaw(&allreduce_.tensor.dtype, -1);
  ExpectAllreduceRefused({"tensor.dtype -1"});
  allreduce_.tensor.dtype = RONDA_INT64;
  shape_[1] = 1;
  SetRaw(&allreduce_.op, 9);
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "op 9", "0 to 8"});
  allreduce_.op = RONDA_SUM;
  SetRaw(&allreduce_.compression, 1 << 30);
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "compression 1073741824", "0 to 4"});
}

TEST_F(ArgumentsTest, ShapesAreChecked) {
  allreduce_.tensor.ndim = -1;
  ExpectAllreduceRefused({"'conv1/weight'", "tensor.ndim is -1"});
  allreduce_.tensor.ndim = RONDA_MAX_NDIM + 1;
  ExpectAllreduceRefused({"tensor.ndim is 65", "0 to 64"});
  allreduce_.tensor.ndim = 2;
  allreduce_.tensor.shape = nullptr;
  ExpectAllreduceRefused({"'conv1/weight'", "tensor.shape is NULL", "ndim is 2"});
}

// Arguments of the other operations on rank 2, with a tensor of shape [3, 4].
template <typename Args>
absl::StatusOr<Submission> Submit(
    Args args, const std::function<void(Args*)>& change = [](Args*) {}) {
  static constexpr int64_t kShape[2] = {3, 4};
  args.tensor = {"t", RONDA_INT32, 2, kShape};
  change(&args);
  return Converted(&args);
}

std::string MessageOf(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(OtherArgumentsTest, OnlyTheRootOfAReduceHasAnOutput) {
  int32_t input = 0, output = 0;
  for (const int root : {1, 2}) {
    const auto reduce = Submit<ronda_reduce_args>(RONDA_REDUCE_ARGS_INIT, [&](ronda_reduce_args* args) {
      args->input = &input;
      args->output = &output;
      args->root = root;
      args->op = RONDA_MIN;
    });
    ASSERT_TRUE(reduce.ok()) << reduce.status();
    EXPECT_EQ(reduce->request.op, OpType::kReduce);
    EXPECT_EQ(reduce->request.reduction, Reduction::kMin);
    EXPECT_EQ(reduce->request.root, root);
    EXPECT_EQ(reduce->input, &input);
    EXPECT_EQ(reduce->output, root == kCaller.rank ? &output : nullptr);
  }
}

// Buffers that a struct can refer to. Each is ignored on ranks on which the operation does not use it.
template <typename Args>
absl::StatusOr<Submission> SubmitBuffers(Args init, int root, const float* input, float* output) {
  return Submit<Args>(init, [&](Args* args) {
    args->root = root;
    args->input = input;
    args->output = output;
    args->output_bytes = 8;
  });
}

TEST(OtherArgumentsTest, OnlyTheRootOfAGatherHasAnOutput) {
  float input[2] = {};
  float output[2] = {};
  for (const int root : {kCaller.rank, kCaller.rank + 1}) {
    const auto gather = SubmitBuffers<ronda_gather_args>(RONDA_GATHER_ARGS_INIT, root, input, output);
    ASSERT_TRUE(gather.ok()) << gather.status();
    EXPECT_EQ(gather->request.root, root);
    EXPECT_EQ(gather->input, input);
    EXPECT_EQ(gather->output, root == kCaller.rank ? output : nullptr);
    EXPECT_EQ(gather->output_bytes, root == kCaller.rank ? 8 : 0);
  }
}

TEST(OtherArgumentsTest, OnlyTheRootOfAScatterHasAnInput) {
  float input[2] = {};
  float output[2] = {};
  for (const int root : {kCaller.rank, kCaller.rank + 1}) {
    const auto scatter = SubmitBuffers<ronda_scatter_args>(RONDA_SCATTER_ARGS_INIT, root, input, output);
    ASSERT_TRUE(scatter.ok()) << scatter.status();
    EXPECT_EQ(scatter->request.root, root);
    EXPECT_EQ(scatter->input, root == kCaller.rank ? input : nullptr);
    EXPECT_EQ(scatter->output, output);
    EXPECT_EQ(scatter->output_bytes, 8u);
  }
}

TEST(OtherArgumentsTest, OperationsAreWhatTheyAreCalled) {
  EXPECT_EQ(Submit<ronda_reducescatter_args>(RONDA_REDUCESCATTER_ARGS_INIT)->request.op, OpType::kReduceScatter);
  EXPECT_EQ(Submit<ronda_broadcast_args>(RONDA_BROADCAST_ARGS_INIT)->request.op, OpType::kBroadcast);
  EXPECT_EQ(Submit<ronda_allgather_args>(RONDA_ALLGATHER_ARGS_INIT)->request.op, OpType::kAllgather);
  EXPECT_EQ(Submit<ronda_gather_args>(RONDA_GATHER_ARGS_INIT)->request.op, OpType::kGather);
  EXPECT_EQ(Submit<ronda_scatter_args>(RONDA_SCATTER_ARGS_INIT)->request.op, OpType::kScatter);
  EXPECT_EQ(Submit<ronda_alltoall_args>(RONDA_ALLTOALL_ARGS_INIT)->request.op, OpType::kAlltoall);
}

TEST(OtherArgumentsTest, SplitsAreCopiedWhereTheyCount) {
  std::vector<int64_t> splits = {1, 2};
  const auto set_splits = [&](auto* args) {
    args->splits = splits.data();
    args->split_count = 2;
  };
  EXPECT_EQ(Submit<ronda_alltoall_args>(RONDA_ALLTOALL_ARGS_INIT, set_splits)->splits, splits);
  EXPECT_TRUE(Submit<ronda_scatter_args>(RONDA_SCATTER_ARGS_INIT, set_splits)->splits.empty()) << "not the root";
  const auto as_root = Submit<ronda_scatter_args>(RONDA_SCATTER_ARGS_INIT, [&](ronda_scatter_args* args) {
    set_splits(args);
    args->root = kCaller.rank;
  });
  EXPECT_EQ(as_root->splits, splits);
  EXPECT_THAT(MessageOf(Submit<ronda_alltoall_args>(RONDA_ALLTOALL_ARGS_INIT,
                                                    [](ronda_alltoall_args* args) { args->split_count = 3; })
                            .status()),
              AllOf(HasSubstr("alltoall 't'"), HasSubstr("split_count is 3")));
  EXPECT_THAT(MessageOf(Submit<ronda_alltoall_args>(RONDA_ALLTOALL_ARGS_INIT,
                                                    [](ronda_alltoall_args* args) { args->split_count = -1; })
                            .status()),
              HasSubstr("split_count is -1"));
}

TEST(OtherArgumentsTest, BothEndsOfAChannelGiveItOneName) {
  const auto sent = Submit<ronda_send_args>(RONDA_SEND_ARGS_INIT, [](ronda_send_args* args) {
    args->to = 4;
    args->tag = 9;
  });
  EXPECT_EQ(sent->request.name, "ronda/sendrecv/2-4/9");
  EXPECT_EQ(sent->request.root, 2);
  EXPECT_EQ(sent->request.receiver, 4);
  const auto received = Submit<ronda_recv_args>(RONDA_RECV_ARGS_INIT, [](ronda_recv_args* args) {
    args->from = 4;
    args->tag = 9;
    args->tensor.name = nullptr;
  });
  EXPECT_EQ(received->request.name, "ronda/sendrecv/4-2/9");
  EXPECT_EQ(received->request.root, 4);
  EXPECT_EQ(received->request.receiver, 2);
  EXPECT_THAT(
      MessageOf(Submit<ronda_send_args>(RONDA_SEND_ARGS_INIT, [](ronda_send_args* args) { args->tag = -1; }).status()),
      HasSubstr("tag is -1"));
}

TEST(OtherArgumentsTest, AnObjectIsAnAllgatherOfBytes) {
  ronda_object_args args = RONDA_OBJECT_ARGS_INIT;
  args.name = "o";
  args.data = "abc";
  args.size = 3;
  args.root = 1;
  const auto object = Converted(&args);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->request.op, OpType::kAllgather);
  EXPECT_EQ(object->request.dtype, DType::kUint8);
  EXPECT_EQ(object->request.shape, Shape{3});
  EXPECT_EQ(object->request.root, 1);
  args.size = std::numeric_limits<size_t>::max();
  EXPECT_THAT(MessageOf(Converted(&args).status()), HasSubstr("object 'o': size is"));
  args.name = "";
  EXPECT_THAT(MessageOf(Converted(&args).status()), HasSubstr("name is empty"));
  args.name = nullptr;
  args.size = 3;
  EXPECT_EQ(Converted(&args)->request.name, "");
}

TEST(OtherArgumentsTest, ASparseAllreduceIsAGroupOfAllgathers) {
  const int64_t shape[2] = {3, 4}, indices[3] = {};
  const float values[12] = {};
  ronda_sparse_allreduce_args args = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  args.tensor = {"s", RONDA_FLOAT32, 2, shape};
  args.values = values;
  args.indices = indices;
  const auto sum = ToSubmissions(&args, kCaller);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(sum->indices.request.name, "s/indices");
  EXPECT_EQ(sum->indices.request.shape, Shape{3});
  EXPECT_EQ(sum->indices.request.dtype, DType::kInt64);
  EXPECT_EQ(sum->indices.input, indices);
  EXPECT_EQ(sum->values.request.shape, (Shape{3, 4}));
  EXPECT_EQ(sum->values.request.group, "s");
  EXPECT_EQ(sum->values.request.group_size, 2);
  EXPECT_EQ(sum->values.request.reduction, Reduction::kSum);
  args.op = RONDA_AVERAGE;
  const auto average = ToSubmissions(&args, kCaller);
  ASSERT_TRUE(average.ok()) << average.status();
  EXPECT_EQ(average->values.request.group_size, 2);
  EXPECT_EQ(average->values.request.reduction, Reduction::kAverage);
  args.op = RONDA_MAX;
  EXPECT_THAT(MessageOf(ToSubmissions(&args, kCaller).status()), AllOf(HasSubstr("'s'"), HasSubstr("op is 2")));
}

TEST(OtherArgumentsTest, ASparseAllreduceNamesTheArrayThatIsMissing) {
  int64_t shape[2] = {3, 4};
  const int64_t indices[3] = {};
  ronda_sparse_allreduce_args args = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  args.tensor = {"s", RONDA_FLOAT32, 2, shape};
  EXPECT_THAT(MessageOf(ToSubmissions(&args, kCaller).status()), HasSubstr("sparse_allreduce 's': indices is NULL"));
  args.indices = indices;
  EXPECT_THAT(MessageOf(ToSubmissions(&args, kCaller).status()), HasSubstr("sparse_allreduce 's': values is NULL"));
  shape[1] = 0;
  EXPECT_TRUE(ToSubmissions(&args, kCaller).ok()) << "rows of no elements";
  shape[0] = 0;
  args.indices = nullptr;
  EXPECT_TRUE(ToSubmissions(&args, kCaller).ok()) << "no rows";
}

TEST(SparseArgumentsTest, OfAGpuBothTensorsAreAndTheSumAlone) {
  const int64_t shape[2] = {3, 4};
  int64_t indices[3] = {};
  float values[12] = {};
  int stream = 0;
  ronda_sparse_allreduce_args args = RONDA_SPARSE_ALLREDUCE_ARGS_INIT;
  args.tensor = {"s", RONDA_FLOAT32, 2, shape};
  args.indices = indices;
  args.values = values;
  args.call.memory = RONDA_MEMORY_CUDA;
  args.call.stream = &stream;
  const auto submissions = ToSubmissions(&args, kCaller);
  ASSERT_TRUE(submissions.ok()) << submissions.status();
  for (const Submission* submission : {&submissions->indices, &submissions->values}) {
    EXPECT_EQ(submission->request.memory, Memory::kCuda);
    EXPECT_EQ(submission->stream, &stream);
  }
  EXPECT_EQ(submissions->indices.input, indices);
  args.op = RONDA_AVERAGE;
  EXPECT_THAT(MessageOf(ToSubmissions(&args, kCaller).status()),
              AllOf(HasSubstr("sparse_allreduce 's'"), HasSubstr("RONDA_SUM")));
}

TEST(ObjectArgumentsTest, ObjectsAreInHostMemory) {
  ronda_object_args args = RONDA_OBJECT_ARGS_INIT;
  args.name = "o";
  EXPECT_TRUE(Converted(&args).ok());
  args.call.memory = RONDA_MEMORY_CUDA;
  EXPECT_THAT(MessageOf(Converted(&args).status()), AllOf(HasSubstr("object 'o'"), HasSubstr("host memory")));
}

TEST(GroupArgumentsTest, MembersAreFoundByTheSizeThatTheFirstTells) {
  const int64_t shape[1] = {1};
  float value = 0;
  LongerArgs args[2] = {{RONDA_ALLREDUCE_ARGS_INIT}, {RONDA_ALLREDUCE_ARGS_INIT}};
  for (int i = 0; i < 2; ++i) {
    args[i].known.struct_size = sizeof(LongerArgs);
    args[i].known.tensor = {i == 0 ? "a" : "b", RONDA_FLOAT32, 1, shape};
    args[i].known.input = args[i].known.output = &value;
  }
  std::vector<Submission> memory;
  const auto group = ToGroup(&args[0].known, 2, "g", kCaller, &memory);
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_EQ(group->size(), 2u);
  EXPECT_EQ((*group)[1].request.name, "b");
  EXPECT_EQ((*group)[1].request.group, "g");
  EXPECT_EQ((*group)[1].request.group_size, 2);
  args[1].known.tensor.name = nullptr;
  EXPECT_THAT(MessageOf(ToGroup(&args[0].known, 2, "g", kCaller, &memory).status()),
              HasSubstr("group 'g': tensor.name is NULL in member 1: the tensors of a group need names"));
  args[1].known.struct_size = sizeof(ronda_allreduce_args);
  EXPECT_THAT(MessageOf(ToGroup(&args[0].known, 2, "g", kCaller, &memory).status()),
              AllOf(HasSubstr("group 'g'"), HasSubstr("in member 1")));
  args[0].known.struct_size += 1;
  EXPECT_THAT(MessageOf(ToGroup(&args[0].known, 2, "g", kCaller, &memory).status()), HasSubstr("in member 0"));
  EXPECT_THAT(MessageOf(ToGroup(&args[0].known, 2, nullptr, kCaller, &memory).status()), HasSubstr("name is NULL"));
  EXPECT_THAT(MessageOf(ToGroup(static_cast<ronda_allgather_args*>(nullptr), 2, "g", kCaller, &memory).status()),
              HasSubstr("pass an array"));
}

TEST(GroupArgumentsTest, MemoryIsUsedAgainAndHoldsNothingOfWhatItHeld) {
  const int64_t shape[1] = {4}, splits[2] = {1, 3};
  const float values[4] = {};
  ronda_alltoall_args args = RONDA_ALLTOALL_ARGS_INIT;
  args.tensor = {"a tensor whose name is so long that it needs memory", RONDA_FLOAT32, 1, shape};
  args.input = values;
  args.splits = splits;
  args.split_count = 2;
  args.call.process_set = 3;
  args.call.deadline_s = 5;
  Submission submission;
  ASSERT_TRUE(ToSubmission(&args, kCaller, &submission).ok());
  submission.request.group = "g";
  submission.request.group_size = 7;
  const char* const memory = submission.request.name.data();

  float value = 0;
  ronda_broadcast_args other = RONDA_BROADCAST_ARGS_INIT;
  other.tensor = {"b", RONDA_FLOAT32, 0, nullptr};
  other.data = &value;
  other.root = 1;
  ASSERT_TRUE(ToSubmission(&other, kCaller, &submission).ok());
  EXPECT_EQ(submission.request.name.data(), memory);
  const auto afresh = Converted(&other);
  EXPECT_EQ(submission.request, afresh->request);
  EXPECT_EQ(submission.input, nullptr);
  EXPECT_EQ(submission.output, &value);
  EXPECT_TRUE(submission.splits.empty());
}

TEST(Utf8Test, AcceptsTextOfAllLengths) {
  EXPECT_TRUE(IsPrintableUtf8(""));
  EXPECT_TRUE(IsPrintableUtf8("layer.0/conv1 weight~"));
  EXPECT_TRUE(IsPrintableUtf8("größe"));             // two bytes
  EXPECT_TRUE(IsPrintableUtf8("重み"));              // three
  EXPECT_TRUE(IsPrintableUtf8("\xf0\x9f\x90\x8d"));  // four
  EXPECT_TRUE(IsPrintableUtf8("\xf4\x8f\xbf\xbf"));  // the last code point
  EXPECT_TRUE(IsPrintableUtf8("\xed\x9f\xbf"));      // just below the surrogates
}

TEST(Utf8Test, RefusesControlCharacters) {
  EXPECT_FALSE(IsPrintableUtf8("a\nb"));
  EXPECT_FALSE(IsPrintableUtf8("\x1b[31m"));
  EXPECT_FALSE(IsPrintableUtf8("\x7f"));
  EXPECT_FALSE(IsPrintableUtf8(absl::string_view("a\0b", 3)));
}

// Puts every byte at every position of a printable ASCII name, because the library checks long names eight bytes at a
// time.
TEST(Utf8Test, EveryByteIsJudgedAtEveryPlace) {
  for (int byte = 0; byte < 256; ++byte) {
    for (size_t place = 0; place < 20; ++place) {
      std::string name(20, 'a' + static_cast<char>(place));
      name[place] = static_cast<char>(byte);
      EXPECT_EQ(IsPrintableUtf8(name), byte >= 0x20 && byte < 0x7f) << byte << " at " << place;
    }
  }
  EXPECT_TRUE(IsPrintableUtf8("layer.0/größe/重み/of-a-name-that-is-long"));
}

TEST(Utf8Test, RefusesWhatIsNotUtf8) {
  EXPECT_FALSE(
      IsPrintableUtf8("gr\xf6\xdf"
                      "e"));                          // Latin-1
  EXPECT_FALSE(IsPrintableUtf8("\x80"));              // a continuation alone
  EXPECT_FALSE(IsPrintableUtf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(IsPrintableUtf8("\xe0\x9f\xbf"));      // overlong
  EXPECT_FALSE(IsPrintableUtf8("\xf0\x8f\xbf\xbf"));  // overlong
  EXPECT_FALSE(IsPrintableUtf8("\xed\xa0\x80"));      // a surrogate
  EXPECT_FALSE(IsPrintableUtf8("\xf4\x90\x80\x80"));  // beyond the last code point
  EXPECT_FALSE(IsPrintableUtf8("\xff"));
}

TEST(Utf8Test, RefusesCharactersCutOff) {
  EXPECT_FALSE(IsPrintableUtf8("\xc3"));
  EXPECT_FALSE(IsPrintableUtf8("\xe9\x87"));
  EXPECT_FALSE(IsPrintableUtf8("\xf0\x9f\x90"));
  EXPECT_FALSE(IsPrintableUtf8("\xf0\x9f\x90z"));
}

}  // namespace
}  // namespace ronda
