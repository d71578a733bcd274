// SPDX-License-Identifier: Apache-2.0

// Buckets of a locked schedule that a rank launches before the ranks' votes on them are known. Neither the host nor the
// trainer waits for the device. After a lost vote, streams go on only when the tensors have been carried out after all.
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

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kCount = 5;

// A time by which an expected event has happened, unless it never happens.
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

std::unique_ptr<DeviceEvent> NoteStream(DeviceRank& rank) {
  auto event = *rank.device().NewEvent();
  EXPECT_EQ(event->Record(rank.stream()), absl::OkStatus());
  return event;
}

// A step of sums on the device. No thread waits for the device.
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

  // Every rank contributes its number, counted from 1.
  void Begin() {
    for (size_t i = 0; i < tensors_.size(); ++i) handles_.push_back(Submit(i));
  }
  std::shared_ptr<Handle> Submit(size_t i) {
    CopyOnStream(rank_, tensors_[i], sources_[i]);
    return SubmitAgain(i);
  }
  // Submits the tensor with the value that it has now.
  std::shared_ptr<Handle> SubmitAgain(size_t i) {
    const auto handle = rank_.runtime().Submit(DeviceSum(absl::StrCat("t", i), rank_, tensors_[i], kCount));
    EXPECT_TRUE(handle.ok()) << handle.status();
    return handle.ok() ? *handle : nullptr;
  }
  // Makes the stream wait for the results and copy them. Returns whether all of them were launched by Soon().
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

// Submits a locked step, and makes the streams wait for it, while the streams of both ranks are busy. Returns whether
// the schedule stayed locked.
bool GiveAwayALockedStep(int tensors) {
  std::barrier<> meeting(2);
  std::atomic<uint64_t> left = 0;
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    Step step(rank, tensors);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    const size_t words = rank.fake().awaited_words();
    StreamHold hold(rank.stream());
    const size_t waits = FakeCuda::HostWaitsOfThisThread();
    step.Begin();
    EXPECT_TRUE(step.End()) << tensors << " tensors";
    EXPECT_EQ(FakeCuda::HostWaitsOfThisThread(), waits);
    EXPECT_GE(rank.fake().awaited_words(), words + static_cast<size_t>(tensors));
    meeting.arrive_and_wait();
    hold.Release();
    step.ExpectSums();
    left += rank.runtime().statistics().schedules_left;
  });
  return left == 0;
}

// 20 buckets are more than LockedSchedule::kOpenVotes. If a rank gets no core for a while, the others unlock the
// schedule. That is right, but it leaves no locked step to test, so the test tries again.
TEST(DeviceAhead, ALockedStepIsGivenAwayWhileTheStreamsOfAllRanksAreBusy) {
  constexpr int kAttempts = 20;
  for (const int tensors : {2, 20}) {
    int attempts = 1;
    while (!GiveAwayALockedStep(tensors) && attempts < kAttempts) ++attempts;
    EXPECT_LT(attempts, kAttempts) << tensors << " tensors";
  }
}

TEST(DeviceAhead, TheNextStepIsTakenBeforeThisOneIsDecided) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    Step step(rank, 3);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    StreamHold hold(rank.stream());
    step.Run();
    const std::shared_ptr<Handle> next = step.SubmitAgain(0);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(rank.runtime().Submit(DeviceSum("t0", rank, step.tensor(0), kCount)).status().code(),
              absl::StatusCode::kAlreadyExists);
    EXPECT_FALSE(next->launched()) << "what it waits for may have to be carried out again";
    meeting.arrive_and_wait();
    hold.Release();
    EXPECT_EQ(next->Wait(), absl::OkStatus());
    EXPECT_THAT(step.tensor(0).Get<float>(), Each(6.0f)) << "the sum of two sums";
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

// --- Where streams cannot wait for words ---

TEST(DeviceAhead, DevicesWithoutWordsHaveTheHostWaitForTheVotes) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne(), .cuda = {.words = FakeCuda::Options::Words::kNo}},
                 [&](DeviceRank& rank) {
                   Step step(rank, 2);
                   RunUntilLocked(rank, step);
                   meeting.arrive_and_wait();
                   StreamHold hold(rank.stream());
                   step.Begin();
                   const std::shared_ptr<Handle> handle = step.handle(0);
                   EXPECT_FALSE(handle->LaunchesBy(MonotonicTime() + absl::Milliseconds(20)));
                   meeting.arrive_and_wait();
                   hold.Release();
                   EXPECT_TRUE(step.End());
                   step.ExpectSums();
                   EXPECT_EQ(rank.fake().awaited_words(), 0u);
                 });
}

TEST(DeviceAhead, AStreamThatSharesQueuesWithRondasIsOrderedByTheHost) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne()}, [&](DeviceRank& rank) {
    Step step(rank, 2);
    RunUntilLocked(rank, step);
    meeting.arrive_and_wait();
    const auto other = *DeviceStream::Create(&rank.device());
    rank.fake().ShareQueues(other->handle());
    StreamHold hold(rank.stream());
    step.Begin();
    const std::shared_ptr<Handle> handle = step.handle(0);
    ASSERT_TRUE(handle->LaunchesBy(Soon()));
    const size_t words = rank.fake().awaited_words();
    meeting.arrive_and_wait();
    std::thread release([&] { hold.Release(); });
    EXPECT_EQ(handle->OrderBefore(other->handle()), absl::OkStatus());
    EXPECT_EQ(rank.fake().awaited_words(), words);
    meeting.arrive_and_wait();
    release.join();
    EXPECT_TRUE(step.End());
    step.ExpectSums();
  });
}

// --- Lost votes ---

// Rank 0 has launched a step of two sums, and its stream waits for them if `stream` is kWaits. Then rank 1 submits
// something else, so the vote on the step is lost. After that, each rank runs `rest`.
struct Loss {
  enum class Stream { kWaits, kDoesNot } stream = Stream::kWaits;
  bool expects_failure = false;
};
void LoseVote(const Loss& loss, const std::function<void(DeviceRank& rank, Step& step)>& rest) {
  std::barrier<> meeting(2);
  RunDeviceRanks({.size = 2, .runtime = OneByOne(), .expects_failure = loss.expects_failure}, [&](DeviceRank& rank) {
    const auto step = std::make_shared<Step>(rank, 2);
    rank.KeepAlive(step);  // the device may still use it when the job has failed
    RunUntilLocked(rank, *step);
    meeting.arrive_and_wait();
    std::vector<float> other(kCount, 1);
    std::optional<StreamHold> hold(rank.stream());
    if (rank.rank() == 0) {
      step->Begin();
      const bool is_launched = loss.stream == Loss::Stream::kWaits ? step->End() : step->handle(1)->LaunchesBy(Soon());
      EXPECT_TRUE(is_launched);
    }
    meeting.arrive_and_wait();
    const std::shared_ptr<Handle> something = *rank.runtime().Submit(Sum("something", &other));
    meeting.arrive_and_wait();
    hold.reset();
    EXPECT_EQ(something->Wait(), absl::OkStatus());
    EXPECT_EQ(rank.runtime().statistics().schedules_left, 1u);
    meeting.arrive_and_wait();  // the other rank's next steps may lock and unlock another schedule
    rest(rank, *step);
  });
}

TEST(DeviceAheadLostVotes, StreamsGoOnWhenTheTensorsHaveBeenCarriedOutAgain) {
  std::barrier<> meeting(2);
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    const bool goes_on = *NoteStream(rank)->done();
    EXPECT_TRUE(rank.rank() == 1 || !goes_on);
    meeting.arrive_and_wait();
    if (rank.rank() == 1) step.Run();
    step.ExpectSums();
    for (int i = 0; i < 20; ++i) step.Run();
    step.ExpectSums();
    EXPECT_EQ(rank.runtime().statistics().schedules_begun, 2u);
  });
}

TEST(DeviceAheadLostVotes, TensorsThatComeBehindThemAreNegotiatedLater) {
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    // On rank 0 the stream comes to this only after the results, which do not exist yet.
    const DeviceTensor& behind = rank.Keep(std::vector<float>(kCount, 1));
    if (rank.rank() == 1) step.Run();
    CopyOnStream(rank, behind, step.tensor(0));
    const std::shared_ptr<Handle> handle = *rank.runtime().Submit(DeviceSum("behind", rank, behind, kCount));
    EXPECT_EQ(handle->Wait(), absl::OkStatus());
    EXPECT_THAT(behind.Get<float>(), Each(6.0f));
    step.ExpectSums();
  });
}

// Rank 1 submits the second tensor first.
TEST(DeviceAheadLostVotes, TheOrderInWhichTheTensorsComeAgainIsFree) {
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    if (rank.rank() == 1) {
      EXPECT_EQ(step.Submit(1)->Wait(), absl::OkStatus());
      EXPECT_EQ(step.Submit(0)->Wait(), absl::OkStatus());
    } else {
      step.ExpectSums();
    }
  });
}

TEST(DeviceAheadLostVotes, MemoryThatTheStreamFreesBehindTheResultIsNotUsedAfterwards) {
  LoseVote({}, [&](DeviceRank& rank, Step& step) {
    if (rank.rank() == 0) rank.fake().FreeOn(rank.stream(), step.tensor(0).Abandon());
    if (rank.rank() == 1) step.Run();
    step.ExpectSums();
  });
}

TEST(DeviceAheadLostVotes, WithdrawnByTheRestOfTheJobTheyFailItOnceAStreamWaits) {
  LoseVote({.expects_failure = true}, [&](DeviceRank& rank, Step& step) {
    // This contradicts what rank 0 has submitted.
    if (rank.rank() == 1) {
      const absl::Status refused = CarryOut(rank.runtime(), DeviceSum("t0", rank, step.tensor(0), kCount - 1));
      EXPECT_FALSE(refused.ok());
    }
    EXPECT_EQ(NoteStream(rank)->Wait(), absl::OkStatus()) << "no stream is stuck";
    absl::Status status;
    while (status.ok()) status = CarryOut(rank.runtime(), DeviceSum("more", rank, step.tensor(1), kCount));
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("'t0'"), HasSubstr("rank 1")));
  });
}

TEST(DeviceAheadLostVotes, WithdrawnByTheRestOfTheJobTheyFailAloneIfNoStreamWaits) {
  LoseVote({.stream = Loss::Stream::kDoesNot}, [&](DeviceRank& rank, Step& step) {
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

TEST(DeviceAheadLostVotes, StreamsGoOnWhenTheJobFailsInstead) {
  LoseVote({.expects_failure = true}, [&](DeviceRank& rank, Step&) {
    if (rank.rank() == 1) rank.runtime().Abandon(absl::AbortedError("given up"));
    EXPECT_EQ(NoteStream(rank)->Wait(), absl::OkStatus());
  });
}

// --- All of it together ---

// Trains in steps that do not wait for the device. Only now and then a rank waits for the results of a step. Once per
// phase each rank submits another sum, at its own random step.
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
