// SPDX-License-Identifier: Apache-2.0

// Tests flags (runtime/step/flags.h) in a job whose steps repeat. The flags travel with the votes, and never cause an
// unlock.
#include "runtime/step/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::RunRuntimesOn;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::Each;

constexpr int kSteps = 12;  // enough for a schedule to be locked

struct Job {
  Backend backend;
  int size;
};

// A flag that a rank has submitted, whose result is not known yet.
struct Asked {
  std::unique_ptr<uint8_t> value;
  std::shared_ptr<Handle> handle;

  // Waits for the result of the flag.
  int Answer() const {
    const absl::Status status = handle->Wait();
    EXPECT_TRUE(status.ok()) << status;
    return *value;
  }
};

Asked Ask(Runtime& runtime, absl::string_view flag, bool raised = false) {
  Asked asked = {.value = std::make_unique<uint8_t>(raised ? 1 : 0)};
  const auto handle = runtime.Submit(
      {.request = {.name = std::string(flag), .dtype = DType::kUint8, .shape = {1}, .reduction = Reduction::kMax},
       .input = asked.value.get(),
       .output = asked.value.get()});
  EXPECT_TRUE(handle.ok()) << handle.status();
  asked.handle = handle.value_or(nullptr);
  return asked;
}

void RunStep(Runtime& runtime, const std::string& name = "gradient") {
  std::vector<float> data(5, 1.0f);
  Succeed(runtime, Sum(name, &data));
  EXPECT_THAT(data, Each(static_cast<float>(runtime.topology().size)));
}

class FlagsTest : public ::testing::TestWithParam<Job> {
 protected:
  void Meet() { meeting_.arrive_and_wait(); }

  // Runs `body` on each rank of a job that has locked its schedule.
  void RunLocked(const std::function<void(Runtime& runtime)>& body) {
    RunRuntimesOn(GetParam().backend, GetParam().size, {}, [&](Runtime& runtime) {
      for (int i = 0; i < kSteps; ++i) RunStep(runtime);
      ASSERT_EQ(runtime.statistics().schedules_begun, 1u);
      Meet();
      body(runtime);
      Meet();
    });
  }

 private:
  std::barrier<> meeting_{GetParam().size};
};

TEST_P(FlagsTest, TravelWithTheNextStepAndNeedNoBucketAndNoMessage) {
  RunLocked([&](Runtime& runtime) {
    const Statistics before = runtime.statistics();
    for (int step = 0; step < 100; ++step) {
      const Asked stop = Ask(runtime, kStopFlag, step % 3 == 0 && runtime.topology().rank == step % GetParam().size);
      const Asked change = Ask(runtime, kChangeFlag, step % 5 == 0);
      RunStep(runtime);
      EXPECT_EQ(stop.Answer(), step % 3 == 0 ? 1 : 0) << step;
      EXPECT_EQ(change.Answer(), step % 5 == 0 ? 1 : 0) << step;
    }
    const Statistics after = runtime.statistics();
    EXPECT_LE(after.buckets_scheduled, before.buckets_scheduled + 101) << "the last step before may be counted late";
    EXPECT_EQ(after.reports_sent, before.reports_sent);
    EXPECT_EQ(after.schedules_left, 0u);
  });
}

TEST_P(FlagsTest, MayBeAskedInSomeStepsOnly) {
  RunLocked([&](Runtime& runtime) {
    for (int step = 0; step < 40; ++step) {
      if (step % 7 != 0) {
        RunStep(runtime);
        continue;
      }
      const Asked asked = Ask(runtime, kStopFlag, runtime.topology().rank == 0);
      RunStep(runtime);
      EXPECT_EQ(asked.Answer(), 1);
    }
    EXPECT_EQ(runtime.statistics().schedules_left, 0u);
  });
}

// Rank 0 submits the flag before a step, and the other ranks submit it after this step. So the flag travels with the
// votes of the next step.
TEST_P(FlagsTest, WaitForTheRankThatAsksLast) {
  RunLocked([&](Runtime& runtime) {
    const bool is_first = runtime.topology().rank == 0;
    for (int step = 0; step < 20; ++step) {
      Asked asked;
      if (is_first) asked = Ask(runtime, kChangeFlag);
      RunStep(runtime);
      if (!is_first) asked = Ask(runtime, kChangeFlag, step % 2 == 0);
      RunStep(runtime);
      EXPECT_EQ(asked.Answer(), step % 2 == 0 && GetParam().size > 1 ? 1 : 0);
    }
    EXPECT_EQ(runtime.statistics().schedules_left, 0u);
  });
}

TEST_P(FlagsTest, AreNegotiatedIfTheProgramWaitsAndNoStepFollows) {
  RunLocked([&](Runtime& runtime) {
    EXPECT_EQ(Ask(runtime, kStopFlag, runtime.topology().rank == 0).Answer(), 1);
    EXPECT_EQ(runtime.statistics().schedules_left, 1u);
    EXPECT_EQ(Ask(runtime, kStopFlag).Answer(), 0);
  });
}

TEST_P(FlagsTest, AreNegotiatedWithATensorThatUnlocksTheSchedule) {
  RunLocked([&](Runtime& runtime) {
    const Asked asked = Ask(runtime, kStopFlag, runtime.topology().rank == 0);
    RunStep(runtime, "another");
    EXPECT_EQ(asked.Answer(), 1);
    for (int i = 0; i < kSteps; ++i) RunStep(runtime);
    EXPECT_EQ(runtime.statistics().schedules_begun, 2u);
  });
}

TEST_P(FlagsTest, InFlightAtTheEndOfTheJobAreCompletedByTheShutdown) {
  RunLocked([&](Runtime& runtime) {
    const Asked asked = Ask(runtime, kStopFlag, runtime.topology().rank == 0);
    EXPECT_TRUE(runtime.Shutdown().ok());
    EXPECT_EQ(asked.Answer(), 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, FlagsTest,
                         ::testing::Values(Job{Backend::kSelf, 1}, Job{Backend::kInProcess, 3}, Job{Backend::kShm, 2},
                                           Job{Backend::kShm, 3}),
                         [](const auto& param) {
                           return absl::StrCat(Name(param.param.backend), "_", param.param.size);
                         });

}  // namespace
}  // namespace ronda
