// SPDX-License-Identifier: Apache-2.0

// Tests buckets of a locked schedule. The ranks agree on a bucket before they launch it, even while the device is still
// busy with earlier work. Neither the host nor the trainer waits for the device. A launched bucket is never undone: if
// a vote is lost, no rank has launched the bucket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "tests/runtime/engine/device_job.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/fake_nccl/load_fake_nccl.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kCount = 5;

// Returns a deadline for an expected event. An event that has not happened by then never will.
absl::Duration Soon() { return MonotonicTime() + absl::Seconds(10); }

// Options for small buckets, with one tensor each.
Runtime::Options OneByOne() {
  Runtime::Options options;
  options.tunables.fusion_threshold = 0;
  return options;
}

void CopyOnStream(DeviceRank& rank, const DeviceTensor& to, const DeviceTensor& from) {
  EXPECT_EQ(rank.device().Call("a test's copy",
                               [&](const ronda_cuda_plugin& cuda) {
                                 return cuda.copy(to.data(), from.data(), kCount * sizeof(float), rank.stream());
                               }),
            absl::OkStatus());
}

std::unique_ptr<DeviceEvent> RecordStream(DeviceRank& rank) {
  auto event = *rank.device().NewEvent();
  EXPECT_EQ(event->Record(rank.stream()), absl::OkStatus());
  return event;
}

// A training step with sums on the device, during which no thread waits for the device.
class Step {
 public:
  Step(DeviceRank& rank, int tensors) : rank_(rank) {
    for (int i = 0; i < tensors; ++i) {
      const std::vector<float> values(kCount, static_cast<float>(rank.rank() + 1));
      sources_.emplace_back(rank, values);
      tensors_.emplace_back(rank, values);
      results_.emplace_back(rank, values);
    }
  }

  // Begins the step. Every rank contributes its number plus 1.
  void Begin() {
    for (size_t i = 0; i < tensors_.size(); ++i) handles_.push_back(Submit(i));
  }
  std::shared_ptr<Handle> Submit(size_t i) {
    CopyOnStream(rank_, tensors_[i], sources_[i]);
    return SubmitAgain(i);
  }
  // Submits the tensor without changing its value.
  std::shared_ptr<Handle> SubmitAgain(size_t i) {
    const auto handle = rank_.runtime().Submit(DeviceSum(absl::StrCat("t", i), rank_, tensors_[i], kCount));
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : nullptr;
  }
  // Makes the stream wait for the results of the step, and then copy them. Returns whether all operations were launched
  // before Soon().
  bool End() {
    bool launched = true;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      launched = launched && handles_[i]->LaunchesBy(Soon());
      if (!launched) break;
      EXPECT_EQ(handles_[i]->OrderBefore(rank_.stream()), absl::OkStatus());
      CopyOnStream(rank_, results_[i], tensors_[i]);
    }
    handles_.clear();
    return launched;
  }
  void Run() {
    Begin();
    EXPECT_TRUE(End());
  }

  void ExpectSums() {
    const int size = rank_.runtime().topology().size;
    for (const DeviceTensor& result : results_) {
      EXPECT_THAT(result.Get<float>(), Each(static_cast<float>(size * (size + 1) / 2)));
    }
  }

  DeviceTensor& tensor(size_t i) { return tensors_[i]; }
  const std::shared_ptr<Handle>& handle(size_t i) const { return handles_[i]; }

 private:
  DeviceRank& rank_;
  std::deque<DeviceTensor> sources_;
  std::deque<DeviceTensor> tensors_;
  std::deque<DeviceTensor> results_;
  std::vector<std::shared_ptr<Handle>> handles_;
};

// Runs steps until a schedule is locked and the device has nothing left to do.
void RunUntilLocked(DeviceRank& rank, Step& step) {
  for (int i = 0; i < 20; ++i) {
    step.Run();
    step.ExpectSums();
  }
  const Statistics statistics = rank.runtime().statistics();
  ASSERT_EQ(statistics.schedules_begun, statistics.schedules_left + 1);
}

// --- Steps ---

// Submits a locked step and makes the streams wait for it, while the streams of both ranks are busy. Returns whether
// the schedule stayed locked.
bool GiveAwayALockedStep(int tensors) {
  std::barrier<> meeting(2);
  std::atomic<uint64_t> left = 0;
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    Step step(rank, tensors);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    StreamHold hold(rank.stream());
    const size_t waits = FakeCuda::HostWaitsOfThisThread();
    step.Begin();
    EXPECT_TRUE(step.End()) << tensors << " tensors";
    EXPECT_EQ(FakeCuda::HostWaitsOfThisThread(), waits);
    meeting.arrive_and_wait();
    hold.Release();
    step.ExpectSums();
    left += rank.runtime().statistics().schedules_left;
    meeting.arrive_and_wait();  // a rank that shuts down unlocks the schedule
  });
  return left == 0;
}

// If a rank gets no core for a while, the other ranks unlock the schedule. That is correct, but leaves no locked step
// to test, so the test tries again.
TEST(DeviceAhead, ALockedStepIsGivenAwayWhileTheStreamsOfAllRanksAreBusy) {
  constexpr int kAttempts = 20;
  for (const int tensors : {2, 20}) {
    int attempts = 1;
    while (!GiveAwayALockedStep(tensors) && attempts < kAttempts) ++attempts;
    EXPECT_LT(attempts, kAttempts) << tensors << " tensors";
  }
}

// Returns one submission for each kind of operation.
std::vector<Submission> OneOfEachKind(DeviceRank& rank, const DeviceTensor& tensor) {
  const auto make = [&](const std::string& name) { return DeviceSum(name, rank, tensor, kCount); };
  std::vector<Submission> all = {make("allreduce"), make("adasum"),    make("overflow"),
                                 make("reduce"),    make("scattered"), make("broadcast")};
  all[1].request.reduction = Reduction::kAdasum;
  all[2].request.overflow = TensorRequest::Overflow::kDetected;
  all[3].request.op = OpType::kReduce;
  all[3].request.root = 0;
  all[4].request.op = OpType::kReduceScatter;
  all[4].output = nullptr;  // the handle holds the result
  all[5].request.op = OpType::kBroadcast;
  all[5].request.root = 0;
  return all;
}

TEST(DeviceAhead, HandlesOfEveryOperationCompleteAtTheLaunch) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    const DeviceTensor tensor(rank, std::vector<float>(kCount, 0));
    const std::vector<Submission> submissions = OneOfEachKind(rank, tensor);
    for (int i = 0; i < 20; ++i) {
      const auto handles = *SubmitAll(rank.runtime(), submissions);
      for (const auto& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
    }
    const Statistics statistics = rank.runtime().statistics();
    EXPECT_EQ(statistics.schedules_begun, statistics.schedules_left + 1);
    meeting.arrive_and_wait();
    StreamHold hold(rank.stream());
    const auto handles = *SubmitAll(rank.runtime(), submissions);
    for (size_t i = 0; i < handles.size(); ++i) {
      EXPECT_TRUE(handles[i]->LaunchesBy(Soon())) << submissions[i].request.name;
      EXPECT_FALSE(handles[i]->done()) << submissions[i].request.name;
    }
    meeting.arrive_and_wait();
    hold.Release();
    for (const auto& handle : handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
  });
}

TEST(DeviceAhead, StepsAreLaunchedHoweverFarTheDeviceIsBehind) {
  constexpr int kSteps = 5;
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    Step step(rank, 3);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    StreamHold hold(rank.stream());
    step.Run();
    std::shared_ptr<Handle> last;
    for (int i = 0; i < kSteps; ++i) {
      for (size_t tensor = 0; tensor < 3; ++tensor) {
        last = step.SubmitAgain(tensor);
        ASSERT_NE(last, nullptr);
        ASSERT_TRUE(last->LaunchesBy(Soon()));
      }
    }
    EXPECT_FALSE(last->done());
    meeting.arrive_and_wait();
    hold.Release();
    EXPECT_EQ(last->Wait(), absl::OkStatus());
    EXPECT_THAT(step.tensor(0).Get<float>(), Each(3.0f * (1 << kSteps))) << "the sum of two sums, five times";
    step.ExpectSums();
  });
}

TEST(DeviceAhead, HandlesAreDoneWhenTheDeviceIs) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2}, [&](DeviceRank& rank) {
    Step step(rank, 1);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    std::optional<StreamHold> hold(rank.stream());
    const std::shared_ptr<Handle> handle = step.Submit(0);
    ASSERT_TRUE(handle->LaunchesBy(Soon()));
    EXPECT_FALSE(handle->done());
    EXPECT_FALSE(handle->WaitUntil(MonotonicTime() + absl::Milliseconds(5)));
    meeting.arrive_and_wait();
    hold.reset();
    EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_TRUE(handle->done());
  });
}

TEST(DeviceAhead, MemoryThatTheStreamFreesBehindTheResultIsNotUsedAfterwards) {
  RunDeviceRanks({.size = 2, .runtime = OneByOne(), .cuda = {.delay_seed = 1}}, [&](DeviceRank& rank) {
    Step step(rank, 2);
    RunUntilLocked(rank, step);
    StreamHold hold(rank.stream());
    step.Run();
    rank.fake().FreeOn(rank.stream(), step.tensor(0).Abandon());
    hold.Release();
    step.ExpectSums();
  });
}

// --- Agreement ---

TEST(DeviceAgreement, ABucketThatARankLacksIsNotLaunchedByTheOthers) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    Step step(rank, 2);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    const int calls = FakeNcclCalls("AllReduce");
    meeting.arrive_and_wait();
    if (rank.rank() == 0) step.Begin();
    meeting.arrive_and_wait();
    if (rank.rank() == 0) {
      EXPECT_FALSE(step.handle(0)->launched());
    }
    EXPECT_EQ(FakeNcclCalls("AllReduce"), calls);
    meeting.arrive_and_wait();
    if (rank.rank() == 1) step.Begin();
    EXPECT_TRUE(step.End());
    step.ExpectSums();
    meeting.arrive_and_wait();
    EXPECT_EQ(FakeNcclCalls("AllReduce"), calls + 2 * 2);
  });
}

// Rank 0 has submitted a step of two sums. Rank 1 submits another tensor instead, so the vote on the step's bucket is
// lost. Each rank then runs `rest`, while rank 0 still has the handles of its step.
struct Loss {
  bool expects_failure = false;
};
void LoseVote(const Loss& loss, const std::function<void(DeviceRank& rank, Step& step)>& rest) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne(), .expects_failure = loss.expects_failure}, [&](DeviceRank& rank) {
    const auto step = std::make_shared<Step>(rank, 2);
    rank.KeepAlive(step);  // the device may still use it when the job has failed
    RunUntilLocked(rank, *step);
    meeting.arrive_and_wait();
    const int calls = FakeNcclCalls("AllReduce");
    std::vector<float> other(kCount, 1);
    if (rank.rank() == 0) step->Begin();
    meeting.arrive_and_wait();
    const std::shared_ptr<Handle> something = *rank.runtime().Submit(Sum("something", &other));
    EXPECT_EQ(something->Wait(), absl::OkStatus());
    EXPECT_EQ(rank.runtime().statistics().schedules_left, 1u);
    EXPECT_EQ(FakeNcclCalls("AllReduce"), calls) << "a lost vote launches nothing";
    if (rank.rank() == 0) {
      EXPECT_FALSE(step->handle(0)->launched());
      EXPECT_THAT(step->tensor(0).Get<float>(), Each(1.0f)) << "the rank's own contribution";
    }
    meeting.arrive_and_wait();  // the other rank's next steps may lock and unlock another schedule
    rest(rank, *step);
  });
}

TEST(DeviceLostVotes, TheTensorsAreNegotiated) {
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    if (rank.rank() == 1) step.Begin();
    EXPECT_TRUE(step.End());
    step.ExpectSums();
    for (int i = 0; i < 20; ++i) step.Run();
    step.ExpectSums();
    EXPECT_EQ(rank.runtime().statistics().schedules_begun, 2u);
  });
}

// After the lost vote, rank 1 submits the second tensor first.
TEST(DeviceLostVotes, TheOrderInWhichTheTensorsComeIsFree) {
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    if (rank.rank() == 1) {
      EXPECT_EQ(step.Submit(1)->Wait(), absl::OkStatus());
      EXPECT_EQ(step.Submit(0)->Wait(), absl::OkStatus());
    } else {
      EXPECT_TRUE(step.End());
      step.ExpectSums();
    }
  });
}

TEST(DeviceLostVotes, TensorsThatContradictTheOtherRanksFailAlone) {
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    if (rank.rank() == 0) {
      const absl::Status refused = step.handle(0)->Wait();
      EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("'t0'"), HasSubstr("rank 1")));
      EXPECT_EQ(step.handle(0)->OrderBefore(rank.stream()), refused);
      EXPECT_EQ(step.handle(1)->Wait(), absl::OkStatus());
    } else {
      EXPECT_FALSE(CarryOut(rank.runtime(), DeviceSum("t0", rank, step.tensor(0), kCount - 1)).ok());
      EXPECT_EQ(step.Submit(1)->Wait(), absl::OkStatus());
    }
    EXPECT_THAT(step.tensor(1).Get<float>(), Each(3.0f));
  });
}

TEST(DeviceLostVotes, AFailureOfTheJobReachesTheHandlesAndHoldsNoStreamBack) {
  LoseVote({.expects_failure = true}, [&](DeviceRank& rank, Step& step) {
    if (rank.rank() == 1) {
      rank.runtime().Abandon(absl::AbortedError("given up"));
    } else {
      EXPECT_THAT(std::string(step.handle(0)->OrderBefore(rank.stream()).message()), HasSubstr("given up"));
    }
    EXPECT_EQ(RecordStream(rank)->Wait(), absl::OkStatus());
  });
}

TEST(DeviceAgreement, AFailureEndsTheVote) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne(), .expects_failure = true}, [&](DeviceRank& rank) {
    const auto step = std::make_shared<Step>(rank, 2);
    rank.KeepAlive(step);
    RunUntilLocked(rank, *step);
    meeting.arrive_and_wait();
    if (rank.rank() == 0) step->Begin();
    meeting.arrive_and_wait();
    if (rank.rank() == 1) return rank.runtime().Abandon(absl::AbortedError("rank 1 has had enough"));
    EXPECT_THAT(std::string(step->handle(0)->Wait().message()),
                AllOf(HasSubstr("'t0'"), HasSubstr("rank 1 has had enough")));
    EXPECT_EQ(RecordStream(rank)->Wait(), absl::OkStatus());
  });
}

// --- All of it together ---

// Trains in steps that do not wait for the device. Each rank waits for the results of only a few steps. Once per phase,
// each rank submits an extra sum at a random step of its own.
void TrainAhead(DeviceRank& rank, uint32_t seed) {
  std::mt19937 common(seed);
  std::mt19937 own(seed + 1 + static_cast<uint32_t>(rank.rank()));
  for (int phase = 0; phase < 4 && !::testing::Test::HasFailure(); ++phase) {
    const int tensors = 1 + static_cast<int>(common() % 4);
    const int steps = 5 + static_cast<int>(common() % 30);
    const int extra_at = static_cast<int>(own() % static_cast<uint32_t>(steps));
    const bool sleeps = own() % 2 == 0;
    Step step(rank, tensors);
    const DeviceTensor other(rank, std::vector<float>(kCount, 1));
    std::shared_ptr<Handle> extra;
    for (int i = 0; i < steps; ++i) {
      step.Begin();
      if (i == extra_at) extra = *rank.runtime().Submit(DeviceSum(absl::StrCat("extra", phase), rank, other, kCount));
      EXPECT_TRUE(step.End());
      if (sleeps && own() % 8 == 0) step.ExpectSums();
    }
    EXPECT_EQ(extra->Wait(), absl::OkStatus());
    EXPECT_THAT(other.Get<float>(), Each(static_cast<float>(rank.runtime().topology().size)));
    step.ExpectSums();
  }
}

class DeviceAheadStress : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceAheadStress, ::testing::Range(1u, 9u));

TEST_P(DeviceAheadStress, ResultsAreRightWhereverRanksLeave) {
  const uint32_t seed = GetParam();
  Runtime::Options options;
  options.tunables.lock_after = 2;
  if (seed % 2 == 0) options.tunables.fusion_threshold = 0;
  RunDeviceRanks({.size = 2 + static_cast<int>(seed % 2), .runtime = options, .cuda = {.delay_seed = seed}},
                 [&](DeviceRank& rank) { TrainAhead(rank, seed); });
}

}  // namespace
}  // namespace ronda::testing
