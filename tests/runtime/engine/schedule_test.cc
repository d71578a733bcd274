// SPDX-License-Identifier: Apache-2.0

// Tests the locked schedule from a trainer's point of view, in jobs that repeat their steps, and in jobs that stop
// repeating them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::Barrier;
using ::ronda::testing::CarryOut;
using ::ronda::testing::FakeClock;
using ::ronda::testing::Join;
using ::ronda::testing::Received;
using ::ronda::testing::RunRanks;
using ::ronda::testing::RunRuntimesOn;
using ::ronda::testing::SubmitAll;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::ronda::testing::WaitAndAdvance;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A number of steps after which the job has locked a schedule and carried it out.
constexpr int kSteps = 12;

struct Job {
  Backend backend;
  int size;
};

std::string NameOf(const ::testing::TestParamInfo<Job>& info) {
  return absl::StrCat(Name(info.param.backend), "_", info.param.size);
}

// One step of a job, which submits some allreduces at once and waits for their results.
class Step {
 public:
  explicit Step(std::vector<std::string> names, size_t count = 5)
      : names_(std::move(names)), count_(count), data_(names_.size()) {}

  // Rank r contributes r + 1 to each element.
  std::vector<std::shared_ptr<Handle>> Submit(Runtime& runtime) {
    std::vector<Submission> submissions;
    for (size_t i = 0; i < names_.size(); ++i) {
      data_[i].assign(count_, static_cast<float>(runtime.topology().rank + 1));
      submissions.push_back(Sum(names_[i], &data_[i]));
    }
    auto handles = SubmitAll(runtime, submissions);
    EXPECT_TRUE(handles.ok()) << handles.status();
    return handles.ok() ? *handles : std::vector<std::shared_ptr<Handle>>();
  }

  void Run(Runtime& runtime) {
    for (const std::shared_ptr<Handle>& handle : Submit(runtime)) {
      const absl::Status status = handle->Wait();
      EXPECT_TRUE(status.ok()) << status;
    }
    ExpectSums(runtime);
  }

  void ExpectSums(Runtime& runtime) const {
    const int size = runtime.topology().size;
    for (const auto& data : data_) EXPECT_THAT(data, Each(static_cast<float>(size * (size + 1) / 2)));
  }

 private:
  const std::vector<std::string> names_;
  const size_t count_;
  std::vector<std::vector<float>> data_;
};

uint64_t MessagesOf(const Statistics& statistics) {
  return statistics.reports_sent + statistics.reports_received + statistics.lists_sent + statistics.lists_received;
}

class ScheduleTest : public ::testing::TestWithParam<Job> {
 protected:
  // Makes each rank wait for all other ranks. Otherwise, the next step of one rank could unlock the schedule while
  // other ranks still check that it is locked.
  void Meet() { meeting_.arrive_and_wait(); }

  void Run(const std::function<void(Runtime& runtime)>& body, const Runtime::Options& options = {}) {
    RunRuntimesOn(GetParam().backend, GetParam().size, options, body);
  }

  // Runs steps until a schedule is locked.
  void Lock(Runtime& runtime, Step* step) {
    for (int i = 0; i < kSteps; ++i) step->Run(runtime);
    const Statistics statistics = runtime.statistics();
    EXPECT_EQ(statistics.schedules_begun, statistics.schedules_left + 1);
    Meet();
  }

 private:
  std::barrier<> meeting_{GetParam().size};
};

TEST_P(ScheduleTest, StepsThatRepeatThemselvesNeedNoControlMessages) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b", "c"});
    Lock(runtime, &step);
    const Statistics before = runtime.statistics();
    for (int i = 0; i < 100; ++i) step.Run(runtime);
    const Statistics after = runtime.statistics();
    EXPECT_EQ(MessagesOf(after), MessagesOf(before));
    EXPECT_EQ(after.buckets_agreed, before.buckets_agreed);
    EXPECT_GE(after.schedule_rounds, before.schedule_rounds + 99) << "the last may not be counted yet";
    EXPECT_EQ(after.schedules_left, 0u);
    Meet();
  });
}

TEST_P(ScheduleTest, ScheduleIsNotLockedIfLockAfterIsZero) {
  Run(
      [](Runtime& runtime) {
        Step step({"a", "b"});
        for (int i = 0; i < kSteps; ++i) step.Run(runtime);
        EXPECT_EQ(runtime.statistics().schedules_begun, 0u);
      },
      {.tunables = {.lock_after = 0}});
}

TEST_P(ScheduleTest, TensorsThatAreWaitedForOneByOneStayApart) {
  Run([&](Runtime& runtime) {
    Step a({"a"});
    Step b({"b"});
    for (int i = 0; i < 50; ++i) {
      a.Run(runtime);
      b.Run(runtime);
    }
    EXPECT_EQ(runtime.statistics().schedules_begun, 1u);
    EXPECT_EQ(runtime.statistics().schedules_left, 0u);
    Meet();
  });
}

TEST_P(ScheduleTest, RunCarriesOutInTheCallingThread) {
  Run([&](Runtime& runtime) {
    for (int i = 0; i < 50; ++i) {
      std::vector<float> data(4, 1.0f);
      const auto handle = runtime.Run(Sum("x", &data));
      ASSERT_TRUE(handle.ok()) << handle.status();
      EXPECT_TRUE((*handle)->done());
      EXPECT_TRUE((*handle)->Wait().ok());
      EXPECT_THAT(data, Each(static_cast<float>(runtime.topology().size)));
    }
    EXPECT_GT(runtime.statistics().schedule_rounds, 30u);
  });
}

TEST_P(ScheduleTest, RunAllCarriesOutSeveral) {
  Run([&](Runtime& runtime) {
    std::vector<std::shared_ptr<Handle>> handles;
    for (int i = 0; i < kSteps; ++i) {
      std::vector<float> a(4, 1.0f);
      std::vector<float> b(4, 2.0f);
      const absl::Status status = runtime.RunAll(std::vector<Submission>{Sum("a", &a), Sum("b", &b)}, &handles);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(handles.size(), 2u);
      EXPECT_TRUE(handles[0]->done() && handles[1]->done());
      EXPECT_THAT(a, Each(1.0f * static_cast<float>(runtime.topology().size)));
      EXPECT_THAT(b, Each(2.0f * static_cast<float>(runtime.topology().size)));
    }
  });
}

TEST_P(ScheduleTest, NewTensorLeavesAndTheJobLocksAgain) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    // Rank 0 submits the new tensor before the step, and the other ranks submit it after the step.
    Step extra({"new"});
    const auto first = runtime.topology().rank == 0 ? extra.Submit(runtime) : step.Submit(runtime);
    const auto second = runtime.topology().rank == 0 ? step.Submit(runtime) : extra.Submit(runtime);
    for (const auto& handle : first) EXPECT_TRUE(handle->Wait().ok());
    for (const auto& handle : second) EXPECT_TRUE(handle->Wait().ok());
    step.ExpectSums(runtime);
    extra.ExpectSums(runtime);
    EXPECT_EQ(runtime.statistics().schedules_left, 1u);
    Meet();
    Lock(runtime, &step);
    EXPECT_EQ(runtime.statistics().schedules_begun, 2u);
  });
}

TEST_P(ScheduleTest, ChangedShapeLeaves) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    Step wider({"a", "b"}, 9);
    Lock(runtime, &wider);
    EXPECT_EQ(runtime.statistics().schedules_begun, 2u);
  });
}

TEST_P(ScheduleTest, MismatchIsExplainedAndTheJobGoesOn) {
  if (GetParam().size == 1) GTEST_SKIP() << "it takes two to disagree";
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    std::vector<float> data(runtime.topology().rank == 1 ? 3 : 5, 1.0f);
    const absl::Status status = CarryOut(runtime, Sum("a", &data));
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'a'"));
    Lock(runtime, &step);
  });
}

TEST_P(ScheduleTest, JoinLeaves) {
  if (GetParam().size == 1) GTEST_SKIP() << "no rank is left to train";
  Run([&](Runtime& runtime) {
    const int size = runtime.topology().size;
    Step step({"a", "b"});
    Lock(runtime, &step);
    if (runtime.topology().rank != 0) {
      std::vector<float> data(5, 1.0f);
      Succeed(runtime, Sum("a", &data));
      EXPECT_THAT(data, Each(static_cast<float>(size - 1)));
    }
    Succeed(runtime, Join());
    Lock(runtime, &step);
  });
}

TEST_P(ScheduleTest, ProcessSetMayBeAddedAndUsed) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    const ProcessSetId set = testing::AddSet(runtime, {0});
    Lock(runtime, &step);
    if (runtime.topology().rank == 0) Succeed(runtime, Barrier("alone", set));
    step.Run(runtime);
  });
}

TEST_P(ScheduleTest, ShutdownEndsTheJobThoughTheOthersAreIdle) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
  });
}

TEST_P(ScheduleTest, ShutdownCompletesPartsOfABucket) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    std::vector<float> data(5, 1.0f);
    const auto handle = runtime.Submit(Sum("a", &data));
    ASSERT_TRUE(handle.ok());
    EXPECT_TRUE(runtime.Shutdown().ok());
    EXPECT_TRUE((*handle)->Wait().ok());
    EXPECT_THAT(data, Each(static_cast<float>(runtime.topology().size)));
  });
}

// At first the program submits all tensors before it waits. Later it submits "b" only when "a" is complete.
TEST_P(ScheduleTest, ProgramThatChangesItsWaysIsNotHeldUp) {
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    Step a({"a"});
    Step b({"b"});
    for (int i = 0; i < 3; ++i) {
      a.Run(runtime);
      b.Run(runtime);
    }
    EXPECT_GE(runtime.statistics().schedules_left, 1u);
  });
}

// The program polls instead of sleeping until "a" is complete, so the engine takes longer to unlock.
TEST_P(ScheduleTest, ProgramThatPollsIsNotHeldUpForLong) {
  FakeClock clock;
  Run(
      [&](Runtime& runtime) {
        Step step({"a", "b"});
        Lock(runtime, &step);
        Step a({"a"});
        const auto handles = a.Submit(runtime);
        EXPECT_TRUE(WaitAndAdvance(*handles[0], &clock).ok());
        a.ExpectSums(runtime);
        EXPECT_EQ(runtime.statistics().schedules_left, 1u);
        Meet();
      },
      {.clock = &clock});
}

TEST_P(ScheduleTest, FailureOfOneRankReachesTheOthersInABucket) {
  if (GetParam().size == 1) GTEST_SKIP() << "there are no others";
  RunRanks(ConnectRanks(GetParam().backend, {.size = GetParam().size}), [&](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({}, {.rank = rank, .size = GetParam().size}, std::move(transport));
    Step step({"a", "b"});
    Lock(*runtime, &step);
    std::vector<float> data(5, 1.0f);
    if (rank == 1) runtime->Abandon(absl::AbortedError("out of data"));
    // Rank 1 may notice the failure before or after its submission.
    const absl::Status status = CarryOut(*runtime, Sum("a", &data));
    EXPECT_THAT(std::string(status.message()), HasSubstr("out of data"));
    EXPECT_THAT(std::string(runtime->Shutdown().message()), HasSubstr("out of data"));
  });
}

// If a rank never submits, the other ranks return to the negotiation, which names the missing rank. The job continues.
TEST_P(ScheduleTest, RankThatStopsSubmittingIsNamedWithTheTensor) {
  if (GetParam().size == 1) GTEST_SKIP() << "no rank is late";
  std::atomic<int> expired{0};
  Run(
      [&](Runtime& runtime) {
        const int others = runtime.topology().size - 1;
        Step step({"a", "b"});
        Lock(runtime, &step);
        if (runtime.topology().rank != 1) {
          Step lonely({"a"});
          const absl::Status status = lonely.Submit(runtime)[0]->Wait();
          EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
          EXPECT_THAT(std::string(status.message()), HasSubstr("'a'"));
          EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
          ++expired;
        }
        while (expired < others) std::this_thread::yield();
      },
      {.tunables = {.stall_warning = absl::Milliseconds(200), .stall_deadline = absl::Seconds(1)}});
}

TEST_P(ScheduleTest, LateRankIsWaitedFor) {
  if (GetParam().size == 1) GTEST_SKIP() << "no rank is late";
  std::atomic<int> submitted{0};
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    if (runtime.topology().rank == 1) {
      while (submitted < runtime.topology().size - 1) std::this_thread::yield();
      step.Run(runtime);
    } else {
      const auto handles = step.Submit(runtime);
      ++submitted;
      for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
      step.ExpectSums(runtime);
    }
    EXPECT_EQ(runtime.statistics().schedules_left, 0u);
    Meet();
  });
}

// Runs one operation of each kind.
void RunAllOperations(Runtime& runtime) {
  const int size = runtime.topology().size;
  const float own = static_cast<float>(runtime.topology().rank);
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> sent(static_cast<size_t>(size), own);
  std::vector<float> broadcast(3, own + 7.0f);
  std::vector<float> adasum(4, 1.0f);
  std::vector<float> overflowing(2, infinity);
  const ::ronda::Shape rows = {size};
  Submission detected = Sum("overflow", &overflowing);
  detected.request.overflow = TensorRequest::Overflow::kDetected;
  Submission weighed = Sum("adasum", &adasum);
  weighed.request.reduction = Reduction::kAdasum;
  const std::vector<Submission> submissions = {
      {.request = {.name = "broadcast", .op = OpType::kBroadcast, .shape = {3}}, .output = broadcast.data()},
      {.request = {.name = "gather", .op = OpType::kAllgather, .shape = rows}, .input = sent.data()},
      {.request = {.name = "exchange", .op = OpType::kAlltoall, .shape = rows}, .input = sent.data()},
      {.request = {.name = "scatter", .op = OpType::kReduceScatter, .shape = rows}, .input = sent.data()},
      detected,
      weighed,
      Barrier("barrier")};
  std::vector<std::shared_ptr<Handle>> handles;
  ASSERT_TRUE(runtime.RunAll(submissions, &handles).ok());
  for (const auto& handle : handles) ASSERT_TRUE(handle->Wait().ok()) << handle->Wait();
  EXPECT_THAT(broadcast, Each(7.0f));
  EXPECT_EQ(Received<float>(*handles[1]).size(), static_cast<size_t>(size * size));
  EXPECT_EQ(Received<float>(*handles[2]).back(), static_cast<float>(size - 1));
  EXPECT_THAT(Received<float>(*handles[3]), ElementsAre(static_cast<float>(size * (size - 1) / 2)));
  EXPECT_EQ(handles[4]->result().overflow, OperationResult::Overflow::kFound);
  EXPECT_THAT(adasum, Each(1.0f)) << "of equal gradients";
}

TEST_P(ScheduleTest, HasAllOperationsThatRepeatThemselves) {
  Run([&](Runtime& runtime) {
    for (int i = 0; i < kSteps; ++i) RunAllOperations(runtime);
    EXPECT_EQ(runtime.statistics().schedules_begun, 1u);
    EXPECT_GT(runtime.statistics().schedule_rounds, 0u);
    Meet();
    Step extra({"new"});
    extra.Run(runtime);
    for (int i = 0; i < kSteps; ++i) RunAllOperations(runtime);
    EXPECT_EQ(runtime.statistics().schedules_left, 1u);
    Meet();
  });
}

TEST_P(ScheduleTest, HandlesMayOutliveTheRuntime) {
  std::vector<std::shared_ptr<Handle>> handles;
  Mutex mu;
  Run([&](Runtime& runtime) {
    Step step({"a", "b"});
    Lock(runtime, &step);
    std::vector<float> data(5, 1.0f);
    const auto handle = Succeed(runtime, Sum("a", &data));
    MutexLock lock(&mu);
    handles.push_back(handle);
  });
  for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
}

// Each waiting thread drives the progress engine, or lets another thread do so.
TEST_P(ScheduleTest, ManyThreadsMayWait) {
  Run([&](Runtime& runtime) {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 3; ++thread) {
      threads.emplace_back([&runtime, thread] {
        Step step({absl::StrCat("thread", thread)});
        for (int i = 0; i < 100; ++i) step.Run(runtime);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

INSTANTIATE_TEST_SUITE_P(Jobs, ScheduleTest,
                         ::testing::Values(Job{Backend::kSelf, 1}, Job{Backend::kInProcess, 2},
                                           Job{Backend::kInProcess, 3}, Job{Backend::kShm, 2},
                                           Job{Backend::kShmSeparately, 3}),
                         NameOf);

}  // namespace
}  // namespace ronda
