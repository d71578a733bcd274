// SPDX-License-Identifier: Apache-2.0

// Tests the results of negotiated tensors in device memory, and waiting for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"

namespace ronda::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kRanks = 3;

class DeviceOperations : public ::testing::TestWithParam<std::string> {
 protected:
  void Run(const std::function<void(DeviceRank& rank)>& body) {
    RunDeviceRanks({.size = kRanks, .backend = GetParam(), .hosts = HostsFor(GetParam(), kRanks)}, body);
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, DeviceOperations,
                         ::testing::Values("nccl", "hierarchical-staged", "staged", "hierarchical-nccl", "peer"),
                         [](const auto& backend) {
                           return absl::StrReplaceAll(backend.param, {{"-", "_"}});
                         });

float Of(DeviceRank& rank) { return static_cast<float>(rank.rank() + 1); }

// Returns the result on the device, as the rank's stream sees it.
template <typename T>
std::vector<T> ResultOf(DeviceRank& rank, const Handle& handle, size_t row_elements = 1) {
  size_t rows = 0;
  for (int64_t dim : handle.result().first_dims) rows += static_cast<size_t>(dim);
  return DeviceTensor::ReadAs<T>(rank, handle.result().rows(), rows * row_elements);
}

TEST_P(DeviceOperations, ARankWithoutATensorTakesTheDeviceOfTheHint) {
  DeviceJobOptions options{.size = kRanks, .devices = 5, .backend = GetParam(), .hosts = HostsFor(GetParam(), kRanks)};
  options.runtime.device_hint = 9;
  RunDeviceRanks(options, [](DeviceRank& rank) {
    if (rank.rank() != 1) {
      const DeviceTensor tensor(rank, std::vector<float>(10, 1.0f));
      ASSERT_NE(SucceedOn(rank, DeviceSum("x", rank, tensor, 10)), nullptr);
      EXPECT_THAT(tensor.Get<float>(), Each(2.0f));
    }
    ASSERT_NE(SucceedOn(rank, Join()), nullptr);
    EXPECT_EQ(fake_cuda_has_context(3), 0);
    EXPECT_EQ(fake_cuda_has_context(4), 1);
  });
}

TEST_P(DeviceOperations, AllreduceSumsScalesAndAverages) {
  Run([](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(1000, Of(rank)));
    Submission submission = DeviceSum("x", rank, tensor, 1000);
    ASSERT_NE(SucceedOn(rank, submission), nullptr);
    EXPECT_THAT(tensor.Get<float>(), Each(6.0f));
    submission.request.reduction = Reduction::kAverage;
    submission.request.prescale = 2;
    submission.request.wire = WireFormat::kFloat16;
    ASSERT_NE(SucceedOn(rank, submission), nullptr);
    EXPECT_THAT(tensor.Get<float>(), Each(12.0f));
  });
}

TEST_P(DeviceOperations, ManyTensorsAreFusedAndKeptApart) {
  Run([](DeviceRank& rank) {
    std::deque<DeviceTensor> tensors;
    std::vector<Submission> submissions;
    for (size_t i = 0; i < 20; ++i)
      tensors.emplace_back(rank, std::vector<float>(i + 1, Of(rank) * static_cast<float>(i)));
    for (size_t i = 0; i < 20; ++i) submissions.push_back(DeviceSum(absl::StrCat("x", i), rank, tensors[i], i + 1));
    const auto handles = SubmitAll(rank.runtime(), submissions);
    ASSERT_TRUE(handles.ok()) << handles.status();
    for (size_t i = 0; i < 20; ++i) {
      EXPECT_EQ((*handles)[i]->Wait(), absl::OkStatus());
      EXPECT_THAT(tensors[i].Get<float>(), Each(6.0f * static_cast<float>(i)));
    }
  });
}

TEST_P(DeviceOperations, ReduceAndReduceScatterReachTheirOwners) {
  Run([](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(5, Of(rank)));
    Submission reduce = DeviceSum("in place", rank, tensor, 5);
    reduce.request.op = OpType::kReduce;
    reduce.request.root = 1;
    ASSERT_NE(SucceedOn(rank, reduce), nullptr);
    EXPECT_THAT(tensor.Get<float>(), Each(rank.rank() == 1 ? 6.0f : Of(rank)));
    Submission scatter = DeviceSum("scattered", rank, tensor, 5);
    scatter.request.op = OpType::kReduceScatter;
    scatter.output = nullptr;
    scatter.request.reduction = Reduction::kMax;
    const auto handle = SucceedOn(rank, scatter);
    ASSERT_NE(handle, nullptr);
    EXPECT_THAT(handle->result().first_dims, ElementsAre(rank.rank() == 2 ? 1 : 2));
    EXPECT_THAT(ResultOf<float>(rank, *handle), Each(6.0f));
  });
}

// The result is written to the caller's memory, except on a rank whose memory is too small.
TEST_P(DeviceOperations, ResultsMayGoToMemoryOfTheCallers) {
  Run([](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, Of(rank)));
    for (const OpType op : {OpType::kAllgather, OpType::kReduceScatter, OpType::kAlltoall}) {
      SCOPED_TRACE(Name(op));
      const size_t elements = op == OpType::kAllgather ? 9 : op == OpType::kAlltoall ? 3 : 1;
      const DeviceTensor output(rank, std::vector<float>(9, -1));
      Submission submission = DeviceSum(Name(op), rank, tensor, 3);
      submission.request.op = op;
      submission.output = output.data();
      submission.output_bytes = elements * sizeof(float);
      const auto handle = SucceedOn(rank, submission);
      ASSERT_NE(handle, nullptr);
      EXPECT_EQ(handle->result().rows(), output.data());
      EXPECT_EQ(ResultOf<float>(rank, *handle).size(), elements);
      std::vector<float> expected(9, -1);
      if (op == OpType::kAllgather) expected = {1, 1, 1, 2, 2, 2, 3, 3, 3};
      if (op == OpType::kReduceScatter) expected[0] = 6;
      if (op == OpType::kAlltoall) std::iota(expected.begin(), expected.begin() + 3, 1.0f);
      EXPECT_EQ(output.Get<float>(), expected);
      const DeviceTensor untouched(rank, std::vector<float>(9, -1));
      submission.output = untouched.data();
      if (rank.rank() == 1) submission.output_bytes -= 1;
      const auto second = rank.runtime().Submit(submission);
      ASSERT_TRUE(second.ok()) << second.status();
      const absl::StatusCode code = rank.rank() == 1 ? absl::StatusCode::kOutOfRange : absl::StatusCode::kOk;
      EXPECT_EQ((*second)->OrderBefore(rank.stream()).code(), code);
      EXPECT_EQ((*second)->Wait().code(), code);
      EXPECT_EQ(untouched.Get<float>(), rank.rank() == 1 ? std::vector<float>(9, -1) : expected);
    }
  });
}

Submission Exchange(OpType op, const std::string& name, DeviceRank& rank, const DeviceTensor& tensor, int64_t rows) {
  return {.request = {.name = name, .op = op, .dtype = DType::kInt32, .memory = Memory::kCuda, .shape = {rows}},
          .input = tensor.data(),
          .output = tensor.data(),
          .stream = rank.stream()};
}

TEST_P(DeviceOperations, ExchangesMoveWhatTheyShould) {
  Run([](DeviceRank& rank) {
    const int32_t own = rank.rank();
    const DeviceTensor tensor(rank, std::vector<int32_t>{own, own + 10, own + 20});
    const auto carry_out = [&](OpType op, int64_t rows) {
      Submission submission = Exchange(op, Name(op), rank, tensor, rows);
      submission.output = nullptr;  // the handle holds the result
      submission.request.root = 1;
      const auto handle = SucceedOn(rank, submission);
      return handle == nullptr ? std::vector<int32_t>() : ResultOf<int32_t>(rank, *handle);
    };
    EXPECT_THAT(carry_out(OpType::kAllgather, own + 1), ElementsAre(0, 1, 11, 2, 12, 22));
    EXPECT_THAT(carry_out(OpType::kAlltoall, 3), ElementsAre(10 * own, 10 * own + 1, 10 * own + 2));
    EXPECT_THAT(carry_out(OpType::kScatter, 3), ElementsAre(10 * own + 1));
    const std::vector<int32_t> gathered = carry_out(OpType::kGather, 1);
    EXPECT_EQ(gathered, own == 1 ? std::vector<int32_t>({0, 1, 2}) : std::vector<int32_t>());
    ASSERT_NE(SucceedOn(rank,
                        [&] {
                          Submission submission = Exchange(OpType::kBroadcast, "broadcast", rank, tensor, 3);
                          submission.request.root = 2;
                          return submission;
                        }()),
              nullptr);
    EXPECT_THAT(tensor.Get<int32_t>(), ElementsAre(2, 12, 22));
  });
}

TEST_P(DeviceOperations, MessagesAndProcessSetsLeaveTheOthersAlone) {
  Run([](DeviceRank& rank) {
    const ProcessSetId set = AddSet(rank.runtime(), {0, 2});
    const DeviceTensor tensor(rank, std::vector<float>(3, Of(rank)));
    if (rank.rank() != 1) {
      Submission in_set = DeviceSum("x", rank, tensor, 3);
      in_set.request.process_set = set;
      ASSERT_NE(SucceedOn(rank, in_set), nullptr);
    }
    EXPECT_THAT(tensor.Get<float>(), Each(rank.rank() == 1 ? 2.0f : 4.0f));
    if (rank.rank() == 2) return;
    Submission message = DeviceSum("message", rank, tensor, 3);
    message.request.op = OpType::kSendRecv;
    message.request.root = 1;
    message.request.receiver = 0;
    ASSERT_NE(SucceedOn(rank, message), nullptr);
    EXPECT_THAT(tensor.Get<float>(), Each(2.0f));
  });
}

TEST_P(DeviceOperations, OverflowIsFoundWherever) {
  Run([](DeviceRank& rank) {
    for (const OpType op : {OpType::kAllreduce, OpType::kReduceScatter}) {
      for (const float value : {1.0f, 3e38f}) {
        const DeviceTensor tensor(rank, std::vector<float>{1, 1, value});
        Submission submission = DeviceSum(absl::StrCat(Name(op), value), rank, tensor, 3);
        submission.request.op = op;
        if (TraitsOf(op).by_rows) submission.output = nullptr;
        submission.request.overflow = TensorRequest::Overflow::kDetected;
        const auto handle = SucceedOn(rank, submission);
        ASSERT_NE(handle, nullptr);
        using Overflow = OperationResult::Overflow;
        EXPECT_EQ(handle->result().FindOverflow(), value > 1 ? Overflow::kFound : Overflow::kNone) << Name(op);
      }
    }
    EXPECT_EQ(rank.fake().zero_fills(), 0u) << "the kernel sets its flags to zero itself";
  });
}

TEST_P(DeviceOperations, ErrorFeedbackMakesUpForRounding) {
  Run([](DeviceRank& rank) {
    // Float16 rounds 1 + 2^-12 to 1. The rounding errors of four steps add up to 2^-10, the distance from 1 to the next
    // float16.
    const float value = 1.0f + 1.0f / 4096;
    float sum = 0;
    DeviceTensor tensor(rank, sizeof(float));
    for (int step = 0; step < 8; ++step) {
      tensor.Set(std::vector<float>{value});
      Submission submission = DeviceSum("x", rank, tensor, 1);
      submission.request.wire = WireFormat::kFloat16;
      submission.error_feedback = Submission::ErrorFeedback::kOn;
      ASSERT_NE(SucceedOn(rank, submission), nullptr);
      sum += tensor.Get<float>().front();
    }
    EXPECT_NEAR(sum, 8 * kRanks * value, 2.5f * kRanks / 1024);
    EXPECT_GT(sum, 8 * kRanks);
  });
}

TEST_P(DeviceOperations, TensorsOfTheHostGoOnBesideThem) {
  Run([](DeviceRank& rank) {
    DeviceTensor tensor(rank, std::vector<float>(4, Of(rank)));
    std::vector<float> host(4, Of(rank));
    for (int step = 0; step < 3; ++step) {
      const auto handles =
          SubmitAll(rank.runtime(), {Sum("host", &host), DeviceSum("device", rank, tensor, 4), Barrier("barrier")});
      ASSERT_TRUE(handles.ok()) << handles.status();
      for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    }
    EXPECT_THAT(host, Each(54.0f));
    EXPECT_THAT(tensor.Get<float>(), Each(54.0f));
  });
}

// --- Waits ---

TEST(DeviceOrder, AnOperationComesAfterWhatItsStreamWasGivenBefore) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, -1));
    DeviceTensor late(rank, std::vector<float>(3, Of(rank)));
    const Submission submission = DeviceSum("x", rank, tensor, 3);
    ASSERT_NE(SucceedOn(rank, DeviceSum("first", rank, late, 3)), nullptr);
    StreamHold hold(rank.stream());
    ASSERT_EQ(rank.device().Call("copying",
                                 [&](const ronda_cuda_plugin& cuda) {
                                   return cuda.copy(tensor.data(), late.data(), 3 * sizeof(float), rank.stream());
                                 }),
              absl::OkStatus());
    const auto handle = rank.runtime().Submit(submission);
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_FALSE((*handle)->done());
    hold.Release();
    EXPECT_EQ((*handle)->Wait(), absl::OkStatus());
    EXPECT_THAT(tensor.Get<float>(), Each(6.0f));
  });
}

TEST(DeviceOrder, AStreamCanWaitWhereNoThreadDoes) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, Of(rank)));
    ASSERT_NE(SucceedOn(rank, Barrier("connected")), nullptr);
    const auto other = DeviceStream::Create(&rank.device());
    ASSERT_TRUE(other.ok()) << other.status();
    StreamHold hold(rank.stream());
    const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
    ASSERT_TRUE(handle.ok()) << handle.status();
    // OrderBefore returns even though the device cannot have begun the operation.
    EXPECT_EQ((*handle)->OrderBefore((*other)->handle()), absl::OkStatus());
    EXPECT_TRUE((*handle)->launched());
    EXPECT_FALSE((*handle)->done());
    const auto after = rank.device().NewEvent();
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ((*after)->Record((*other)->handle()), absl::OkStatus());
    EXPECT_EQ((*after)->done().value(), false);
    hold.Release();
    EXPECT_EQ((*after)->Wait(), absl::OkStatus());
    EXPECT_TRUE((*handle)->done());
    EXPECT_THAT(tensor.Get<float>(), Each(3.0f));
  });
}

// By the time the stream reads the result, the handle has been freed, and another result has been made.
TEST(DeviceOrder, AResultIsNotUsedAgainWhileAStreamThatWasOrderedReadsIt) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, Of(rank)));
    const DeviceTensor read(rank, std::vector<float>(6, -1));
    ASSERT_NE(SucceedOn(rank, Barrier("connected")), nullptr);
    const auto reader = DeviceStream::Create(&rank.device());
    ASSERT_TRUE(reader.ok()) << reader.status();
    Submission gather = DeviceSum("x", rank, tensor, 3);
    gather.request.op = OpType::kAllgather;
    gather.output = nullptr;  // the handle holds the result
    auto first = rank.runtime().Submit(gather);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)->OrderBefore((*reader)->handle()), absl::OkStatus());
    const void* const rows = (*first)->result().rows();
    EXPECT_EQ((*first)->Wait(), absl::OkStatus());
    StreamHold hold((*reader)->handle());
    const auto read_rows = [&](const ronda_cuda_plugin& cuda) {
      return cuda.copy(read.data(), rows, 6 * sizeof(float), (*reader)->handle());
    };
    EXPECT_EQ(rank.device().Call("reading", read_rows), absl::OkStatus());
    first->reset();
    const DeviceTensor other(rank, std::vector<float>(3, 7));
    gather.input = other.data();
    const auto second = SucceedOn(rank, gather);
    ASSERT_NE(second, nullptr);
    EXPECT_NE(second->result().rows(), rows);
    hold.Release();
    const auto end = rank.device().NewEvent();
    ASSERT_TRUE(end.ok()) << end.status();
    EXPECT_EQ((*end)->Record((*reader)->handle()), absl::OkStatus());
    EXPECT_EQ((*end)->Wait(), absl::OkStatus());
    EXPECT_THAT(read.Get<float>(), ElementsAre(1, 1, 1, 2, 2, 2));
  });
}

TEST(DeviceOrder, ANameIsFreeAgainOnceItsTensorIsOnItsWay) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, Barrier("connected")), nullptr);
    StreamHold hold(rank.stream());
    std::vector<std::shared_ptr<Handle>> handles;
    for (int step = 0; step < 3; ++step) {
      const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
      ASSERT_TRUE(handle.ok()) << handle.status();
      EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
      handles.push_back(*handle);
    }
    EXPECT_FALSE(handles.front()->done());
    hold.Release();
    for (const auto& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_THAT(tensor.Get<float>(), Each(8.0f));
  });
}

// A step of a trainer that submits its gradients one by one, all on one stream. Ronda's stream and the trainer's stream
// wait for each other once per bucket.
TEST(DeviceOrder, ManyTensorsOfOneStreamAreWaitedForOnce) {
  constexpr size_t kTensors = 30;
  Runtime::Options options;
  options.tunables.cycle_time = absl::Milliseconds(100);  // so that tensors share buckets
  RunDeviceRanks({.size = 1, .runtime = options}, [&](DeviceRank& rank) {
    std::deque<DeviceTensor> tensors;
    for (size_t i = 0; i < kTensors; ++i) tensors.emplace_back(rank, std::vector<float>(3, 1));
    const auto step = [&] {
      StreamHold hold(rank.stream());  // else operations complete, and need no wait
      std::vector<std::shared_ptr<Handle>> handles;
      for (size_t i = 0; i < kTensors; ++i) {
        handles.push_back(*rank.runtime().Submit(DeviceSum(absl::StrCat("x", i), rank, tensors[i], 3)));
      }
      for (const auto& handle : handles) EXPECT_EQ(handle->OrderBefore(rank.stream()), absl::OkStatus());
      hold.Release();
      for (const auto& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    };
    const auto buckets = [&] {
      const Statistics statistics = rank.runtime().statistics();
      return statistics.buckets_agreed + statistics.buckets_scheduled;
    };
    step();
    const size_t recorded = rank.fake().recorded_events();
    const size_t awaited = rank.fake().awaited_events();
    const size_t buckets_before = buckets();
    step();
    const size_t new_buckets = buckets() - buckets_before;
    EXPECT_LT(new_buckets, kTensors);
    // Ronda records one event per submission, and one event behind each bucket.
    EXPECT_EQ(rank.fake().recorded_events() - recorded, kTensors + new_buckets);
    // For each bucket, Ronda's stream waits once, and so does the trainer's stream.
    EXPECT_EQ(rank.fake().awaited_events() - awaited, 2 * new_buckets);
  });
}

TEST(DeviceOrder, EachOfTheStreamsIsWaitedFor) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const auto other = *DeviceStream::Create(&rank.device());
    const DeviceTensor first(rank, std::vector<float>(3, 1));
    const DeviceTensor second(rank, std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, DeviceSum("first", rank, first, 3)), nullptr);
    StreamHold hold(other->handle());
    Submission behind_hold = DeviceSum("first", rank, first, 3);
    behind_hold.stream = other->handle();
    // The first submission is on the held stream, and the last submission is on the rank's stream.
    std::vector<Submission> submissions = {behind_hold, DeviceSum("second", rank, second, 3)};
    for (Submission& submission : submissions) {
      submission.request.group = "both";
      submission.request.group_size = 2;
    }
    const auto handles = *SubmitAll(rank.runtime(), submissions);
    EXPECT_EQ(handles[0]->OrderBefore(rank.stream()), absl::OkStatus());
    EXPECT_FALSE(handles[0]->done());
    hold.Release();
    for (const auto& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_THAT(first.Get<float>(), Each(4.0f));
  });
}

TEST(DeviceOrder, CallbacksRunWhenTheDeviceIsThere) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    ASSERT_NE(SucceedOn(rank, Barrier("connected")), nullptr);
    std::atomic<int> called{0};
    const auto note = [&](const absl::Status& status) { called += status.ok() ? 1 : 100; };
    StreamHold hold(rank.stream());
    const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ((*handle)->OnCompletion(note), absl::OkStatus());
    EXPECT_EQ((*handle)->OrderBefore(rank.stream()), absl::OkStatus());
    EXPECT_EQ((*handle)->OnCompletion(note), absl::OkStatus());
    EXPECT_EQ(called, 0);
    hold.Release();
    EXPECT_EQ((*handle)->Wait(), absl::OkStatus());
    EXPECT_EQ((*handle)->OnCompletion(note), absl::OkStatus());
    while (called < 3) std::this_thread::yield();
    EXPECT_EQ(called, 3);
  });
}

TEST(DeviceOrder, AShutdownWaitsForTheDevice) {
  std::atomic<int> completed{0};
  RunDeviceRanks({.size = 2, .cuda = {.delay_seed = 7}}, [&](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(3, 1));
    const auto handle = rank.runtime().Submit(DeviceSum("x", rank, tensor, 3));
    ASSERT_TRUE(handle.ok()) << handle.status();
    EXPECT_EQ((*handle)->OnCompletion([&](const absl::Status& status) { completed += status.ok() ? 1 : 100; }),
              absl::OkStatus());
    EXPECT_EQ(rank.runtime().Shutdown(), absl::OkStatus());
    EXPECT_TRUE((*handle)->done());
    EXPECT_EQ((*handle)->Wait(), absl::OkStatus());
  });
  EXPECT_EQ(completed, 2);
}

TEST(DeviceMemoryUse, DoesNotGrowWithTheNumberOfSteps) {
  RunDeviceRanks({.size = 2}, [](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(100, 0));
    const auto step = [&] {
      Submission scatter = DeviceSum("scatter", rank, tensor, 100);
      scatter.request.op = OpType::kReduceScatter;
      scatter.output = nullptr;
      scatter.request.overflow = TensorRequest::Overflow::kDetected;
      const auto handles = SubmitAll(rank.runtime(), {DeviceSum("x", rank, tensor, 100), scatter});
      ASSERT_TRUE(handles.ok()) << handles.status();
      for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
      ASSERT_NE(SucceedOn(rank, Barrier("step")), nullptr);
    };
    for (int i = 0; i < 40; ++i) step();
    ASSERT_NE(SucceedOn(rank, Barrier("begin")), nullptr);
    const size_t allocations = rank.fake().allocations();
    const size_t events = rank.fake().created_events();
    constexpr int kSteps = 100;
    for (int i = 0; i < kSteps; ++i) step();
    // On a busy machine, threads may release handles late, so a few more objects may be in use at once. If each step
    // leaked an object, the count would grow with the number of steps.
    EXPECT_LE(rank.fake().allocations(), allocations + kSteps / 2);
    EXPECT_LE(rank.fake().created_events(), events + kSteps / 2);
    ASSERT_NE(SucceedOn(rank, Barrier("end")), nullptr);
  });
}

}  // namespace
}  // namespace ronda::testing
