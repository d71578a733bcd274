#include "bench/step/backward.h"

#include <gtest/gtest.h>
#include <time.h>

#include <vector>

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
    computation.Until(absl::Milliseconds(1));  // has passed
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

}  // namespace
}  // namespace ronda::bench
