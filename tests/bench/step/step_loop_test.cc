// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <time.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "bench/step/step_loop.h"

namespace ronda::bench {
namespace {

ModelShapes ModelWithWork(const std::vector<double>& work) {
  ModelShapes model;
  for (double each : work) model.parameters.push_back({.name = "w", .shape = {1}, .work = each});
  return model;
}

absl::Duration Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return absl::DurationFromTimespec(now);
}

TEST(BackwardPass, LastParameterComesFirstAndTimeFollowsTheWork) {
  const std::vector<ReadyGradient> pass = BackwardPass(ModelWithWork({1, 2, 5}), absl::Milliseconds(80));
  ASSERT_EQ(pass.size(), 3u);
  EXPECT_EQ(pass[0].parameter, 2u);
  EXPECT_EQ(pass[0].after, absl::Milliseconds(50));
  EXPECT_EQ(pass[1].parameter, 1u);
  EXPECT_EQ(pass[1].after, absl::Milliseconds(70));
  EXPECT_EQ(pass[2].parameter, 0u);
  EXPECT_EQ(pass[2].after, absl::Milliseconds(80));
}

TEST(BackwardPass, WithoutWorkTheTimeIsSpreadEvenly) {
  const std::vector<ReadyGradient> pass = BackwardPass(ModelWithWork({0, 0, 0, 0}), absl::Milliseconds(4));
  for (size_t i = 0; i < pass.size(); ++i) EXPECT_EQ(pass[i].after, absl::Milliseconds(i + 1));
}

TEST(BackwardPass, WithoutTimeEverythingIsReadyAtOnce) {
  for (const ReadyGradient& gradient : BackwardPass(ModelWithWork({3, 0, 1}), absl::ZeroDuration())) {
    EXPECT_EQ(gradient.after, absl::ZeroDuration());
  }
}

TEST(Computation, SpinningAndSleepingTakeTheTimeThatWasAsked) {
  for (ComputeKind kind : {ComputeKind::kSpin, ComputeKind::kSleep}) {
    const absl::Duration start = Now(CLOCK_MONOTONIC);
    const Computation computation(kind);
    computation.Until(absl::Milliseconds(2));
    computation.Until(absl::Milliseconds(1));  // this time has passed
    EXPECT_GE(Now(CLOCK_MONOTONIC) - start, absl::Milliseconds(2));
  }
}

TEST(Computation, BurningUsesCpuTimeAndSleepingNone) {
  const absl::Duration start = Now(CLOCK_THREAD_CPUTIME_ID);
  Computation(ComputeKind::kBurn).Until(absl::Milliseconds(2));
  const absl::Duration burnt = Now(CLOCK_THREAD_CPUTIME_ID);
  EXPECT_GE(burnt - start, absl::Milliseconds(2));
  Computation(ComputeKind::kSleep).Until(absl::Milliseconds(5));
  EXPECT_LT(Now(CLOCK_THREAD_CPUTIME_ID) - burnt, absl::Milliseconds(5));
}

ModelShapes TwoTensors() { return {.parameters = {{.name = "a", .shape = {40}}, {.name = "b", .shape = {3, 5}}}}; }

// Returns the exact sum of what FillForCheck() gives `ranks` ranks, multiplied by `factor`.
Gradients Reduced(int ranks, float factor) {
  Gradients sum(TwoTensors());
  std::vector<Gradients> all;
  for (int rank = 0; rank < ranks; ++rank) all.emplace_back(TwoTensors()).FillForCheck(rank);
  for (size_t i = 0; i < sum.size(); ++i) {
    for (int64_t index = 0; index < sum.count(i); ++index) {
      sum.data(i)[index] = 0;
      for (Gradients& one : all) sum.data(i)[index] += one.data(i)[index] * factor;
    }
  }
  return sum;
}

TEST(Gradients, BeginAtCacheLines) {
  Gradients gradients(TwoTensors());
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(gradients.data(i)) % 64, 0u);
  }
}

TEST(Gradients, SumsAndAveragesAreRecognised) {
  for (int ranks : {1, 2, 3, 5}) {
    EXPECT_EQ(Reduced(ranks, 1).CountWrong(ranks, Gradients::Expected::kSum, WireFormat::kNone), 0);
    EXPECT_EQ(Reduced(ranks, 1.0f / static_cast<float>(ranks))
                  .CountWrong(ranks, Gradients::Expected::kAverage, WireFormat::kNone),
              0);
  }
}

TEST(Gradients, WrongElementsAreCounted) {
  Gradients untouched(TwoTensors());
  untouched.FillForCheck(0);
  // Every 13th element is right even without an allreduce, because the pattern is zero there.
  EXPECT_EQ(untouched.CountWrong(2, Gradients::Expected::kSum, WireFormat::kNone), 40 - 4 + 15 - 2);
  Gradients reduced = Reduced(2, 1);
  reduced.data(1)[14] += 1;
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kNone), 1);
  reduced.data(0)[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kNone), 2);
}

TEST(Gradients, RoundingOfTheWireIsNoError) {
  Gradients reduced = Reduced(2, 1);
  reduced.data(0)[12] *= 1.05f;
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kFp8E4M3), 0);
  EXPECT_EQ(reduced.CountWrong(2, Gradients::Expected::kSum, WireFormat::kFloat16), 1);
}

ModelShapes ThreeTensors() {
  return {.parameters = {{.name = "a", .shape = {2}, .work = 1},
                         {.name = "b", .shape = {3}, .work = 1},
                         {.name = "c", .shape = {4}, .work = 1}}};
}

// An exchange that records calls, and counts one control message per finished step.
class NotingExchange : public GradientExchange {
 public:
  static constexpr size_t kFinish = 100;

  void Ready(size_t parameter) override { calls.push_back(parameter); }
  void Finish() override {
    calls.push_back(kFinish);
    ++sent_;
  }
  int64_t control_messages() override { return sent_; }

  std::vector<size_t> calls;

 private:
  int64_t sent_ = 0;
};

StepLoop Loop(int warm_up, int steps) {
  return StepLoop({.pass = BackwardPass(ThreeTensors(), absl::ZeroDuration()), .warm_up = warm_up, .steps = steps});
}

TEST(StepLoop, GradientsComeInBackwardOrderAndThenTheStepIsFinished) {
  NotingExchange exchange;
  Gradients gradients(ThreeTensors());
  Loop(0, 1).Run(&exchange, &gradients, nullptr);
  EXPECT_EQ(exchange.calls, (std::vector<size_t>{2, 1, 0, NotingExchange::kFinish}));
}

TEST(StepLoop, WarmUpIsNeitherTimedNorCounted) {
  NotingExchange exchange;
  Gradients gradients(ThreeTensors());
  const BlockResult result = Loop(5, 3).Run(&exchange, &gradients, nullptr);
  EXPECT_EQ(exchange.calls.size(), 4u * (5 + 3));
  EXPECT_EQ(result.step_ms.size(), 3u);
  EXPECT_EQ(result.control_messages, 3);
  EXPECT_EQ(result.wrong, 0);
}

TEST(StepLoop, TheCheckFindsAnExchangeThatDoesNothing) {
  NoExchange exchange;
  Gradients gradients(ThreeTensors());
  const StepLoop::Check alone = {.rank = 0, .ranks = 1};
  EXPECT_EQ(Loop(0, 1).Run(&exchange, &gradients, &alone).wrong, 0);
  const StepLoop::Check of_two = {.rank = 0, .ranks = 2};
  EXPECT_EQ(Loop(0, 1).Run(&exchange, &gradients, &of_two).wrong, 1 + 2 + 3);  // all but the zeros
}

TEST(StepLoop, StepsTakeAtLeastTheTimeOfTheirComputation) {
  NoExchange exchange;
  Gradients gradients(ThreeTensors());
  const StepLoop loop({.pass = BackwardPass(ThreeTensors(), absl::Milliseconds(3)), .warm_up = 0, .steps = 2});
  for (double step : loop.Run(&exchange, &gradients, nullptr).step_ms) EXPECT_GE(step, 2.99);
}

}  // namespace
}  // namespace ronda::bench
