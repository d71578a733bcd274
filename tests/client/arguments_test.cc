#include "client/arguments.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What a caller may write into an enum of the C ABI, whatever C++ thinks of it.
template <typename Enum>
void SetRaw(Enum* value, int raw) {
  std::memcpy(value, &raw, sizeof(raw));
}

class ArgumentsTest : public ::testing::Test {
 protected:
  ArgumentsTest() {
    const ronda_tensor tensor = {"conv1/weight", RONDA_FLOAT32, 2, shape_};
    allreduce_.tensor = tensor;
    allreduce_.input = buffer_;
    allreduce_.output = buffer_;
    broadcast_.tensor = tensor;
    broadcast_.data = buffer_;
    allgather_.tensor = tensor;
    allgather_.input = buffer_;
  }

  // That the arguments are refused, with a text that has all of `parts`.
  void ExpectAllreduceRefused(const std::vector<std::string>& parts) {
    const auto submission = ToSubmission(&allreduce_);
    EXPECT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument);
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(submission.status().message()), HasSubstr(part));
    }
  }

  int64_t shape_[2] = {3, 4};
  float buffer_[24] = {};
  ronda_allreduce_args allreduce_ = RONDA_ALLREDUCE_ARGS_INIT;
  ronda_broadcast_args broadcast_ = RONDA_BROADCAST_ARGS_INIT;
  ronda_allgather_args allgather_ = RONDA_ALLGATHER_ARGS_INIT;
};

TEST_F(ArgumentsTest, AllreduceCarriesEverythingOver) {
  allreduce_.output = buffer_ + 12;
  allreduce_.op = RONDA_MAX;
  allreduce_.compression = RONDA_COMPRESSION_BF16;
  allreduce_.prescale = 0.5;
  allreduce_.postscale = 2;
  const auto submission = ToSubmission(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.name, "conv1/weight");
  EXPECT_EQ(submission->request.op, OpType::kAllreduce);
  EXPECT_EQ(submission->request.dtype, DType::kFloat32);
  EXPECT_EQ(submission->request.shape, (Shape{3, 4}));
  EXPECT_EQ(submission->input, buffer_);
  EXPECT_EQ(submission->output, buffer_ + 12);
  EXPECT_EQ(submission->request.reduction, Reduction::kMax);
  EXPECT_EQ(submission->request.reduction, Reduction::kSum);
  EXPECT_EQ(submission->request.wire, WireFormat::kBfloat16);
  EXPECT_EQ(submission->request.prescale, 0.5);
  EXPECT_EQ(submission->request.postscale, 2);
}

TEST_F(ArgumentsTest, AverageIsASumThatIsDivided) {
  allreduce_.op = RONDA_AVERAGE;
  const auto submission = ToSubmission(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.reduction, Reduction::kSum);
  EXPECT_EQ(submission->request.reduction, Reduction::kAverage);
}

TEST_F(ArgumentsTest, AScaleOfZeroMeansNone) {
  allreduce_.prescale = 0;
  allreduce_.postscale = 0;
  const auto submission = ToSubmission(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.prescale, 1);
  EXPECT_EQ(submission->request.postscale, 1);
}

TEST_F(ArgumentsTest, AScalarHasNoShape) {
  allreduce_.tensor.ndim = 0;
  allreduce_.tensor.shape = nullptr;
  const auto submission = ToSubmission(&allreduce_);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.shape, Shape{});
}

TEST_F(ArgumentsTest, ATensorWithoutElementsNeedsNoBuffer) {
  shape_[1] = 0;
  allreduce_.input = allreduce_.output = nullptr;
  EXPECT_TRUE(ToSubmission(&allreduce_).ok());
  broadcast_.data = nullptr;
  EXPECT_TRUE(ToSubmission(&broadcast_, 1).ok());
  allgather_.input = nullptr;
  EXPECT_TRUE(ToSubmission(&allgather_).ok());
}

TEST_F(ArgumentsTest, NullStructsAreNamed) {
  const std::string message(ToSubmission(static_cast<ronda_allreduce_args*>(nullptr)).status().message());
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

// A program built with a later ronda.h, whose struct has one more field.
struct LongerArgs {
  ronda_allreduce_args known;
  int64_t added = 0;
};

TEST_F(ArgumentsTest, ALongerStructIsAcceptedUnlessItsNewFieldsAreUsed) {
  LongerArgs longer = {allreduce_, 0};
  longer.known.struct_size = sizeof(longer);
  EXPECT_TRUE(ToSubmission(&longer.known).ok());
  longer.added = 1;
  const auto submission = ToSubmission(&longer.known);
  EXPECT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(submission.status().message()), HasSubstr("newer ronda.h"));
}

TEST_F(ArgumentsTest, NamesAreChecked) {
  allreduce_.tensor.name = nullptr;
  ExpectAllreduceRefused({"allreduce", "tensor.name is NULL"});
  allreduce_.tensor.name = "";
  ExpectAllreduceRefused({"allreduce", "tensor.name is empty"});
  const std::string longest(RONDA_MAX_NAME_LENGTH, 'x');
  allreduce_.tensor.name = longest.c_str();
  EXPECT_TRUE(ToSubmission(&allreduce_).ok());
  const std::string too_long = longest + "x";
  allreduce_.tensor.name = too_long.c_str();
  ExpectAllreduceRefused({"xxx...' is longer than 1024 bytes"});
  allreduce_.tensor.name = "caf\xe9";
  ExpectAllreduceRefused({"not UTF-8"});
}

TEST_F(ArgumentsTest, UnknownEnumeratorsAreNamed) {
  SetRaw(&allreduce_.tensor.dtype, 9);
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "tensor.dtype 9", "0 to 8"});
  SetRaw(&allreduce_.tensor.dtype, -1);
  ExpectAllreduceRefused({"tensor.dtype -1"});
  allreduce_.tensor.dtype = RONDA_INT64;
  shape_[1] = 1;
  SetRaw(&allreduce_.op, 5);
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "op 5", "0 to 4"});
  allreduce_.op = RONDA_SUM;
  SetRaw(&allreduce_.compression, 1 << 30);
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "compression 1073741824", "0 to 2"});
}

TEST_F(ArgumentsTest, ShapesAreChecked) {
  allreduce_.tensor.ndim = -1;
  ExpectAllreduceRefused({"'conv1/weight'", "tensor.ndim is -1"});
  allreduce_.tensor.ndim = RONDA_MAX_NDIM + 1;
  ExpectAllreduceRefused({"tensor.ndim is 65", "0 to 64"});
  allreduce_.tensor.ndim = 2;
  shape_[1] = -4;
  ExpectAllreduceRefused({"'conv1/weight'", "dimension 1 is negative", "[3, -4]"});
  allreduce_.tensor.shape = nullptr;
  ExpectAllreduceRefused({"'conv1/weight'", "tensor.shape is NULL", "ndim is 2"});
}

TEST_F(ArgumentsTest, ShapesThatOverflowAreRefused) {
  shape_[0] = int64_t{1} << 40;
  shape_[1] = int64_t{1} << 40;
  ExpectAllreduceRefused({"'conv1/weight'", "[1099511627776, 1099511627776] of float32"});
  // The elements can be counted, the bytes cannot.
  shape_[0] = int64_t{1} << 61;
  shape_[1] = 1;
  ExpectAllreduceRefused({"more bytes"});
  // Also beside a zero.
  int64_t with_zero[3] = {int64_t{1} << 40, int64_t{1} << 40, 0};
  allreduce_.tensor.ndim = 3;
  allreduce_.tensor.shape = with_zero;
  ExpectAllreduceRefused({"more bytes"});
}

TEST_F(ArgumentsTest, NullBuffersAreNamed) {
  allreduce_.input = nullptr;
  ExpectAllreduceRefused({"allreduce 'conv1/weight'", "input is NULL", "[3, 4]", "12 elements"});
  allreduce_.input = buffer_;
  allreduce_.output = nullptr;
  ExpectAllreduceRefused({"output is NULL"});
  broadcast_.data = nullptr;
  EXPECT_THAT(std::string(ToSubmission(&broadcast_, 1).status().message()),
              AllOf(HasSubstr("broadcast 'conv1/weight'"), HasSubstr("data is NULL")));
  allgather_.input = nullptr;
  EXPECT_THAT(std::string(ToSubmission(&allgather_).status().message()),
              AllOf(HasSubstr("allgather 'conv1/weight'"), HasSubstr("input is NULL")));
}

TEST_F(ArgumentsTest, BuffersMayBeEqualOrDisjointButNotOverlap) {
  allreduce_.output = buffer_ + 12;
  EXPECT_TRUE(ToSubmission(&allreduce_).ok());
  allreduce_.output = buffer_ + 11;
  ExpectAllreduceRefused({"'conv1/weight'", "overlap by 4 bytes"});
  allreduce_.input = buffer_ + 12;
  ExpectAllreduceRefused({"overlap by 44 bytes"});
}

TEST_F(ArgumentsTest, BoolHasNoAverage) {
  allreduce_.tensor.dtype = RONDA_BOOL;
  allreduce_.op = RONDA_AVERAGE;
  ExpectAllreduceRefused({"'conv1/weight'", "RONDA_AVERAGE", "RONDA_BOOL", "use RONDA_SUM"});
}

TEST_F(ArgumentsTest, ScalesMustBeFinite) {
  allreduce_.prescale = std::nan("");
  ExpectAllreduceRefused({"'conv1/weight'", "prescale is nan"});
  allreduce_.prescale = 1;
  allreduce_.postscale = std::numeric_limits<double>::infinity();
  ExpectAllreduceRefused({"'conv1/weight'", "postscale is inf"});
}

TEST_F(ArgumentsTest, RootsAreRanksOfTheJob) {
  for (int root : {-1, 4}) {
    broadcast_.root = root;
    const auto submission = ToSubmission(&broadcast_, 4);
    EXPECT_EQ(submission.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(submission.status().message()),
                AllOf(HasSubstr("broadcast 'conv1/weight': root is " + std::to_string(root)), HasSubstr("0 to 3")));
  }
  broadcast_.root = 3;
  const auto submission = ToSubmission(&broadcast_, 4);
  ASSERT_TRUE(submission.ok()) << submission.status();
  EXPECT_EQ(submission->request.root, 3);
  EXPECT_EQ(submission->output, buffer_);
}

TEST_F(ArgumentsTest, AScalarCannotBeGathered) {
  allgather_.tensor.ndim = 0;
  EXPECT_THAT(std::string(ToSubmission(&allgather_).status().message()), HasSubstr("pass it with shape [1]"));
}

TEST(OptionsTest, ZeroesLeaveEverythingAsItIs) {
  const Tunables before = {.cycle_time = absl::Milliseconds(7), .fusion_threshold = 8, .cache_capacity = 9};
  Tunables tunables = before;
  const ronda_options options = RONDA_OPTIONS_INIT;
  ASSERT_TRUE(ApplyOptions(&options, &tunables).ok());
  ASSERT_TRUE(ApplyOptions(nullptr, &tunables).ok());
  EXPECT_EQ(tunables.cycle_time, before.cycle_time);
  EXPECT_EQ(tunables.fusion_threshold, before.fusion_threshold);
  EXPECT_EQ(tunables.cache_capacity, before.cache_capacity);
  EXPECT_EQ(tunables.stall_warning, before.stall_warning);
  EXPECT_EQ(tunables.stall_deadline, before.stall_deadline);
  EXPECT_EQ(tunables.start_timeout, before.start_timeout);
}

TEST(OptionsTest, ValuesAreSetInTheirUnits) {
  Tunables tunables;
  const ronda_options options = {sizeof(ronda_options), 2.5, 4096, 10, 0.5, 90, 3};
  ASSERT_TRUE(ApplyOptions(&options, &tunables).ok());
  EXPECT_EQ(tunables.cycle_time, absl::Microseconds(2500));
  EXPECT_EQ(tunables.fusion_threshold, 4096u);
  EXPECT_EQ(tunables.cache_capacity, 10u);
  EXPECT_EQ(tunables.stall_warning, absl::Milliseconds(500));
  EXPECT_EQ(tunables.stall_deadline, absl::Seconds(90));
  EXPECT_EQ(tunables.start_timeout, absl::Seconds(3));
}

TEST(OptionsTest, NegativeNumbersSwitchOff) {
  Tunables tunables = {.cycle_time = absl::Seconds(1)};
  const ronda_options options = {sizeof(ronda_options), -1, -1, -1, -1, -1, 0};
  ASSERT_TRUE(ApplyOptions(&options, &tunables).ok());
  EXPECT_EQ(tunables.cycle_time, absl::ZeroDuration());
  EXPECT_EQ(tunables.fusion_threshold, 0u);
  EXPECT_EQ(tunables.cache_capacity, 0u);
  EXPECT_EQ(tunables.stall_warning, absl::InfiniteDuration());
  EXPECT_EQ(tunables.stall_deadline, absl::InfiniteDuration());
}

TEST(OptionsTest, SenselessValuesAreNamed) {
  Tunables tunables;
  ronda_options options = RONDA_OPTIONS_INIT;
  options.start_timeout_s = -1;
  EXPECT_THAT(std::string(ApplyOptions(&options, &tunables).message()), HasSubstr("start_timeout_s is -1"));
  options.start_timeout_s = 0;
  options.stall_warning_s = std::nan("");
  EXPECT_THAT(std::string(ApplyOptions(&options, &tunables).message()), HasSubstr("stall_warning_s"));
  options.stall_warning_s = 0;
  options.struct_size = 3;
  EXPECT_THAT(std::string(ApplyOptions(&options, &tunables).message()), HasSubstr("RONDA_OPTIONS_INIT"));
}

}  // namespace
}  // namespace ronda
