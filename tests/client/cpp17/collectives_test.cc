// SPDX-License-Identifier: Apache-2.0

// Tests the C++ API in a job of one rank.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class Call>
ronda_status CodeThrownBy(const Call& call) {
  try {
    call();
  } catch (const ronda::Error& error) {
    return error.code();
  }
  return RONDA_OK;
}

TEST(JobTest, CallsBeforeInitThrowNotInitialized) {
  std::vector<float> values(2);
  const ronda::Tensor view = ronda::tensor("x", values);
  EXPECT_FALSE(ronda::is_initialized());
  for (int (*number)() :
       {ronda::rank, ronda::size, ronda::local_rank, ronda::local_size, ronda::cross_rank, ronda::cross_size}) {
    EXPECT_EQ(CodeThrownBy(number), RONDA_ERROR_NOT_INITIALIZED);
  }
  EXPECT_EQ(CodeThrownBy([&] { ronda::allreduce(view); }), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(CodeThrownBy([&] { ronda::broadcast(view, 0); }), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(CodeThrownBy([&] { ronda::allgather("x", values.data(), {2}); }), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(CodeThrownBy([] { ronda::barrier(); }), RONDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(ronda::try_shutdown().code(), RONDA_ERROR_NOT_INITIALIZED);
}

TEST(JobTest, OptionsThatAreNotSetLeaveTheEnvironmentsValues) {
  const ronda::detail::OptionsView view = ronda::detail::to_c(ronda::Options());
  const ronda_options& c = view.c;
  EXPECT_EQ(c.struct_size, sizeof(ronda_options));
  EXPECT_EQ(c.cycle_time_ms, 0);
  EXPECT_EQ(c.fusion_threshold, 0);
  EXPECT_EQ(c.cache_capacity, 0);
  EXPECT_EQ(c.stall_warning_s, 0);
  EXPECT_EQ(c.stall_deadline_s, 0);
  EXPECT_EQ(c.start_timeout_s, 0);
  EXPECT_EQ(c.process_set_count, 0);
  EXPECT_EQ(c.epoch, 0);
}

TEST(JobTest, OptionsReachTheLibraryInItsUnits) {
  ronda::Options options;
  options.cycle_time = std::chrono::microseconds(2500);
  options.fusion_threshold = 0;
  options.cache_capacity = 5;
  options.stall_warning = std::chrono::milliseconds(500);
  options.stall_deadline = std::chrono::seconds(0);
  options.start_timeout = std::chrono::minutes(2);
  options.process_sets = {{0}, {1, 2}};
  options.epoch = int64_t{1} << 29;
  const ronda::detail::OptionsView view = ronda::detail::to_c(options);
  const ronda_options& c = view.c;
  EXPECT_EQ(c.cycle_time_ms, 2.5);
  EXPECT_LT(c.fusion_threshold, 0);
  EXPECT_EQ(c.cache_capacity, 5);
  EXPECT_EQ(c.stall_warning_s, 0.5);
  EXPECT_LT(c.stall_deadline_s, 0);
  EXPECT_EQ(c.start_timeout_s, 120);
  ASSERT_EQ(c.process_set_count, 2);
  EXPECT_EQ(c.epoch, int64_t{1} << 29);
  EXPECT_EQ(c.process_sets[1].count, 2);
  EXPECT_EQ(c.process_sets[1].ranks[1], 2);
}

// Each test has its own job.
class CollectivesTest : public ::testing::Test {
 protected:
  CollectivesTest() { ronda::init(); }
  ~CollectivesTest() override { EXPECT_TRUE(ronda::try_shutdown().ok()); }

  std::vector<float> values_ = {1, 2, 3};
  const ronda::Tensor view_ = ronda::tensor("x", values_);
};

TEST_F(CollectivesTest, TheSecondInitThrowsAlreadyInitialized) {
  EXPECT_EQ(CodeThrownBy([] { ronda::init(); }), RONDA_ERROR_ALREADY_INITIALIZED);
  EXPECT_EQ(ronda::try_init().code(), RONDA_ERROR_ALREADY_INITIALIZED);
  EXPECT_TRUE(ronda::is_initialized());
  EXPECT_EQ(ronda::rank(), 0);
  EXPECT_EQ(ronda::size(), 1);
}

TEST_F(CollectivesTest, AllreduceWorksInPlaceAndOutOfPlace) {
  ronda::AllreduceOptions twice;
  twice.prescale = 2;
  std::vector<float> output(3);
  ronda::allreduce(view_, output.data(), twice);
  EXPECT_THAT(output, ElementsAre(2, 4, 6));
  EXPECT_THAT(values_, ElementsAre(1, 2, 3));
  ronda::allreduce(view_, twice);
  EXPECT_THAT(values_, ElementsAre(2, 4, 6));
  EXPECT_TRUE(ronda::try_allreduce(view_, {ronda::Op::Sum}).ok());
  EXPECT_TRUE(ronda::try_allreduce(view_, output.data()).ok());
}

TEST_F(CollectivesTest, EmptyBracesAreTheDefaultOptions) {
  std::vector<float> values = {1, 2};
  const ronda::Tensor view = ronda::tensor("x", values);
  ronda::allreduce(view, {});
  ronda::allreduce(view, {}, {});
  EXPECT_TRUE(ronda::try_allreduce(view, {}).ok());
  EXPECT_TRUE(ronda::try_allreduce_async(view, {}).ok());
  ronda::allreduce_async(view, {}).synchronize();
  EXPECT_THAT(values, ElementsAre(1, 2));
}

TEST_F(CollectivesTest, CompressionRoundsOnce) {
  values_ = {1 + 1.0f / 4096, 65504.0f, -3};
  ronda::allreduce(view_, {ronda::Op::Average, ronda::Compression::fp16});
  EXPECT_THAT(values_, ElementsAre(1, 65504.0f, -3));
  values_ = {1 + 1.0f / 512, 1e30f, -3};
  ronda::allreduce(view_, {ronda::Op::Average, ronda::Compression::bf16});
  EXPECT_EQ(values_[0], 1);
  EXPECT_NEAR(values_[1], 1e30f, 1e30f / 256);
}

TEST_F(CollectivesTest, HandlesPollWaitAndMove) {
  ronda::Handle handle = ronda::allreduce_async(view_);
  EXPECT_TRUE(handle.wait().ok());
  EXPECT_TRUE(ronda::poll(handle));
  EXPECT_NO_THROW(ronda::synchronize(handle));
  ronda::Handle moved = std::move(handle);
  EXPECT_EQ(handle.id(), 0);  // NOLINT(bugprone-use-after-move): what is left is a handle of no operation
  EXPECT_TRUE(handle.poll());
  EXPECT_TRUE(handle.wait().ok());
  EXPECT_TRUE(moved.wait().ok());
  moved = ronda::broadcast_async(view_, 0);
  EXPECT_TRUE(moved.wait().ok());
}

TEST_F(CollectivesTest, BadArgumentsThrowOrAreReturned) {
  const ronda::Tensor null{"n", nullptr, RONDA_FLOAT32, {3}};
  EXPECT_EQ(CodeThrownBy([&] { ronda::allreduce(null); }), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_allreduce(null).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(ronda::try_allreduce_async(null).status().message(), HasSubstr("'n'"));
  EXPECT_EQ(CodeThrownBy([&] { ronda::allreduce_async(null); }), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(CodeThrownBy([&] { ronda::broadcast_async(view_, 1); }), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_broadcast(view_, -1).code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_allgather<float>("n", nullptr, {3}).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(ronda::try_allgather("scalar", values_.data(), {}).status().code(), RONDA_ERROR_INVALID_ARGUMENT);
}

TEST_F(CollectivesTest, AScaleOfZeroIsAMistake) {
  ronda::AllreduceOptions options;
  options.prescale = 0;
  EXPECT_THAT(ronda::try_allreduce(view_, options).message(), HasSubstr("'x': a scale is 0"));
  EXPECT_THAT(values_, ElementsAre(1, 2, 3));
}

TEST_F(CollectivesTest, AllgatherReturnsElementsAndFirstDimensions) {
  EXPECT_THAT(ronda::allgather("g", values_.data(), {3}), ElementsAre(1, 2, 3));
  const bool flags[2] = {true, false};
  EXPECT_THAT(ronda::allgather("flags", flags, {2}), ElementsAre(true, false));
  const std::int32_t matrix[6] = {1, 2, 3, 4, 5, 6};
  auto handle = ronda::allgather_async("m", matrix, {2, 3});
  EXPECT_THAT(handle.rows_per_rank(), ElementsAre(2));
  EXPECT_EQ(handle.count(), 6u);
  EXPECT_EQ(handle.data()[5], 6);
  EXPECT_THAT(handle.result(), ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST_F(CollectivesTest, ZeroElementsAreFine) {
  std::vector<float> empty;
  ronda::allreduce(ronda::tensor("e", empty));
  ronda::broadcast(ronda::tensor("e", empty), 0);
  EXPECT_TRUE(ronda::allgather<float>("e", nullptr, {0, 4}).empty());
}

struct Optimizer {
  void step() {}
  std::vector<ronda::Tensor> state() { return {ronda::tensor("momentum", momentum), ronda::tensor("steps", &steps)}; }

  std::vector<float> momentum = {1, 2};
  std::int64_t steps = 7;
};

TEST_F(CollectivesTest, ParametersAndStateSurviveTheirBroadcast) {
  ronda::broadcast_parameters({view_}, 0);
  EXPECT_THAT(values_, ElementsAre(1, 2, 3));
  Optimizer optimizer;
  ronda::broadcast_optimizer_state(optimizer, 0);
  EXPECT_THAT(optimizer.momentum, ElementsAre(1, 2));
  EXPECT_EQ(optimizer.steps, 7);
}

TEST_F(CollectivesTest, AParameterThatCannotBeSentIsNamed) {
  const ronda::Tensor null{"bias", nullptr, RONDA_FLOAT32, {3}};
  const ronda::Status status = ronda::try_broadcast_parameters({view_, null}, 0);
  EXPECT_EQ(status.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(status.message(), HasSubstr("'bias'"));
  EXPECT_TRUE(ronda::try_broadcast(view_, 0).ok()) << "the first parameter is still in flight";
}

}  // namespace
