// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/peer/peer_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/runtime/collectives/peer/peer_job.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kFew = 1000;    // floats: a one-shot reduction
constexpr size_t kMany = 10000;  // a two-shot reduction of one chunk

CallInfo Info(absl::string_view label, const Group* group = nullptr) {
  return {.label = label, .group = group, .limits = {.deadline = absl::Seconds(50)}};
}

float Value(RankId rank, int step) { return static_cast<float>((rank + 1) * (step % 5 + 1)); }

float Sum(const Group& group, int step) {
  float sum = 0;
  for (const RankId rank : group.ranks()) sum += Value(rank, step);
  return sum;
}

// Enqueues an allreduce on the device of `rank`. The other ranks do not take part, so the stream of `rank` waits for
// them.
void LetWait(PeerRank& rank, const DeviceMemory& tensor) {
  ASSERT_EQ(rank.Allreduce(tensor, Info("x")), absl::OkStatus());
  EXPECT_FALSE(rank.HasFinished());
}

// All streams of all ranks share one queue, and the groups overlap. A wait that was enqueued too early would block the
// arrival for which it waits.
TEST(PeerCommunicatorTest, ThreadsThatShareAQueueDoNotBlockEachOther) {
  constexpr int kRanks = 4;
  PeerJob job(kRanks, {.devices = 1, .delay_seed = 5, .queues = 1});
  const std::vector<Group> groups = {Group({0, 1}),      Group({1, 2, 3}), Group({0, 3}),
                                     Group::All(kRanks), Group({1, 3}),    Group({0, 2})};
  job.OnEveryRank([&](RankId rank, PeerRank& self) {
    for (int step = 0; step < 40; ++step) {
      const Group& group = groups[static_cast<size_t>(step) % groups.size()];
      const DeviceMemory tensor = self.Floats(std::vector<float>(step % 2 == 0 ? kFew : kMany, Value(rank, step)));
      ASSERT_EQ(self.Allreduce(tensor, Info("x", &group)), absl::OkStatus());
      self.Finish();
      const float expected = group.Contains(rank) ? Sum(group, step) : Value(rank, step);
      ASSERT_THAT(PeerRank::Read(tensor), Each(expected)) << "step " << step;
    }
  });
}

// The same with ranks that have their own queues, beside ranks that share one.
TEST(PeerCommunicatorTest, RanksOnSeveralDevicesMakeCallsAhead) {
  constexpr int kRanks = 3;
  PeerJob job(kRanks, {.devices = 2, .delay_seed = 6, .queues = 1});
  const std::vector<Group> groups = {Group({0, 1}), Group({1, 2}), Group::All(kRanks), Group({0, 2})};
  job.OnEveryRank([&](RankId rank, PeerRank& self) {
    std::vector<DeviceMemory> tensors;
    for (int step = 0; step < 24; ++step) {
      const Group& group = groups[static_cast<size_t>(step) % groups.size()];
      tensors.push_back(self.Floats(std::vector<float>(kMany, Value(rank, step))));
      ASSERT_EQ(self.Allreduce(tensors.back(), Info("x", &group)), absl::OkStatus());
    }
    self.Finish();
    for (int step = 0; step < 24; ++step) {
      const Group& group = groups[static_cast<size_t>(step) % groups.size()];
      const float expected = group.Contains(rank) ? Sum(group, step) : Value(rank, step);
      ASSERT_THAT(PeerRank::Read(tensors[static_cast<size_t>(step)]), Each(expected)) << "step " << step;
    }
  });
}

// The streams pause at random, so a rank often packs the next tensor while another rank still reads the last one.
TEST(PeerCommunicatorTest, ARankDoesNotOverwriteWhatAnotherRankStillReads) {
  constexpr int kRanks = 3;
  constexpr int kSteps = 60;
  PeerJob job(kRanks, {.devices = kRanks, .delay_seed = 7});
  job.OnEveryRank([&](RankId rank, PeerRank& self) {
    std::vector<DeviceMemory> tensors;
    for (int step = 0; step < kSteps; ++step) {
      tensors.push_back(self.Floats(std::vector<float>(step % 2 == 0 ? kFew : kMany, Value(rank, step))));
      ASSERT_EQ(self.Allreduce(tensors.back(), Info("x")), absl::OkStatus());
    }
    self.Finish();
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_THAT(PeerRank::Read(tensors[static_cast<size_t>(step)]), Each(Sum(Group::All(kRanks), step)))
          << "step " << step;
    }
  });
}

// Returns the number of calls that all ranks make for `steps` allreduces of the same tensors.
size_t CallsOfSteps(PeerJob& job, size_t count, int steps) {
  std::vector<DeviceMemory> tensors(static_cast<size_t>(job.size()));
  const auto run = [&](int times) {
    job.OnEveryRank([&](RankId rank, PeerRank& self) {
      for (int i = 0; i < times; ++i) {
        ASSERT_EQ(self.Allreduce(tensors[static_cast<size_t>(rank)], Info("x")), absl::OkStatus());
      }
    });
  };
  job.OnEveryRank([&](RankId rank, PeerRank& self) {
    tensors[static_cast<size_t>(rank)] = self.Floats(std::vector<float>(count, 1));
  });
  run(2);
  const size_t before = job.cuda().calls();
  run(steps);
  const size_t calls = job.cuda().calls() - before;
  job.OnEveryRank([](RankId, PeerRank& self) { self.Finish(); });
  return calls;
}

TEST(PeerCommunicatorTest, AReductionTakesThreeKernelsAndOneCallPerMeetingAndAtTheEnd) {
  PeerJob job(2, {.devices = 2});
  EXPECT_EQ(CallsOfSteps(job, kFew, 10), 2u * 10 * (3 + 1 + 1));
  EXPECT_EQ(CallsOfSteps(job, kMany, 10), 2u * 10 * (3 + 2 + 1));
}

TEST(PeerCommunicatorTest, ThreadsThatShareADeviceTakeTwoCallsPerMeeting) {
  PeerJob job(2, {.devices = 1});
  EXPECT_EQ(CallsOfSteps(job, kMany, 10), 2u * 10 * (3 + 2 * 2 + 1));
}

TEST(PeerCommunicatorTest, AnAbortEndsTheWaitForARankThatDoesNotCome) {
  PeerJob job(2, {.devices = 2});
  PeerRank& self = job.rank(0);
  const DeviceMemory tensor = self.Floats(std::vector<float>(kMany, 1));
  LetWait(self, tensor);
  self.communicator->Abort();
  EXPECT_TRUE(self.HasFinished());
  EXPECT_FALSE(self.device->is_abandoned());
  EXPECT_EQ(self.communicator->failure().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(self.Allreduce(tensor, Info("y")).code(), absl::StatusCode::kCancelled);
  self.communicator->Abort();
}

// After its abort, the stream of rank 0 goes on with incomplete data, and writes the words for which the others wait.
// Rank 2 is late, so without further rules, rank 1 would now reduce the incomplete data.
TEST(PeerCommunicatorTest, OtherRanksDoNotUseWhatAnAbortedRankComputes) {
  PeerJob job(3, {.devices = 3});
  std::vector<DeviceMemory> tensors;
  for (RankId rank = 0; rank < 3; ++rank) {
    tensors.push_back(job.rank(rank).Floats(std::vector<float>(kMany, Value(rank, 0))));
  }
  std::optional<StreamHold> late(job.rank(2).stream->handle());
  job.OnEveryRank([&](RankId rank, PeerRank& self) {
    ASSERT_EQ(self.Allreduce(tensors[static_cast<size_t>(rank)], Info("x")), absl::OkStatus());
  });
  job.rank(0).communicator->Abort();
  EXPECT_TRUE(job.rank(0).HasFinished());
  late.reset();
  for (int i = 0; i < 50; ++i) {
    ASSERT_FALSE(job.rank(1).HasFinished());
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_THAT(PeerRank::Read(tensors[1]), Each(Value(1, 0))) << "its input, since no result has come";
  job.OnEveryRank([](RankId, PeerRank& self) { self.communicator->Abort(); });
  EXPECT_TRUE(job.rank(1).HasFinished());
}

// Rank 0 is aborted when rank 1 is between its meeting with rank 0 and its reads. Rank 0's stream no longer waits for
// anyone, so it packs its third tensor into the slot that rank 1 reads.
TEST(PeerCommunicatorTest, OtherRanksDoNotUseAPadThatAnAbortedRankOverwrites) {
  PeerJob job(2, {.devices = 2});
  const DeviceMemory own = job.rank(1).Floats(std::vector<float>(kFew, Value(1, 0)));
  std::optional<StreamHold> before_reads;
  job.rank(1).marks->on_mark = [&](StreamPhase phase) {
    if (phase == StreamPhase::kTransfer) before_reads.emplace(job.rank(1).stream->handle());
  };
  std::vector<DeviceMemory> theirs;
  const std::unique_ptr<DeviceEvent> end_of_first = *job.rank(0).device->NewEvent();
  for (int step = 0; step < 3; ++step) {
    theirs.push_back(job.rank(0).Floats(std::vector<float>(kFew, Value(0, step))));
    ASSERT_EQ(job.rank(0).Allreduce(theirs.back(), Info("x")), absl::OkStatus());
    if (step == 0) {
      ASSERT_EQ(end_of_first->Record(job.rank(0).stream->handle()), absl::OkStatus());
    }
  }
  ASSERT_EQ(job.rank(1).Allreduce(own, Info("x")), absl::OkStatus());
  while (!*end_of_first->done()) absl::SleepFor(absl::Milliseconds(1));
  job.rank(0).communicator->Abort();
  EXPECT_TRUE(job.rank(0).HasFinished());
  before_reads.reset();
  for (int i = 0; i < 50; ++i) {
    ASSERT_FALSE(job.rank(1).HasFinished()) << "its result is wrong";
    absl::SleepFor(absl::Milliseconds(1));
  }
  job.rank(1).communicator->Abort();
  EXPECT_TRUE(job.rank(1).HasFinished());
}

// A trainer's stream waits for the work, so the work must not end with a wrong result.
TEST(PeerCommunicatorTest, AHeldDeviceGoesOnOnlyWithTheRightResult) {
  PeerJob job(2, {.devices = 2});
  const DeviceMemory first = job.rank(0).Floats(std::vector<float>(kMany, Value(0, 0)));
  const DeviceMemory second = job.rank(1).Floats(std::vector<float>(kMany, Value(1, 0)));
  LetWait(job.rank(0), first);
  ASSERT_TRUE(job.rank(0).device->Hold("a test"));
  job.rank(0).communicator->Abort();
  EXPECT_FALSE(job.rank(0).HasFinished());
  ASSERT_EQ(job.rank(1).Allreduce(second, Info("x")), absl::OkStatus());
  job.rank(0).Finish();
  EXPECT_THAT(PeerRank::Read(first), Each(Sum(Group::All(2), 0)));
}

TEST(PeerCommunicatorTest, AnAbortAbandonsAStuckDevice) {
  PeerJob job(2, {.devices = 2});
  PeerRank& self = job.rank(0);
  self.device->set_timeout(absl::Milliseconds(20));
  StreamHold trainers_kernel(self.stream->handle());
  self.communicator->Abort();
  EXPECT_TRUE(self.device->is_abandoned());
  trainers_kernel.Release();
  self.Finish();
}

// The second abort of a rank must not hold the other rank again, because that rank's own abort is over.
TEST(PeerCommunicatorTest, StreamsOfAbandonedDevicesGoOnWhenTheTrainersKernelsEnd) {
  PeerJob job(2, {.devices = 2});
  std::optional<StreamHold> trainers_kernels[] = {std::optional<StreamHold>(job.rank(0).stream->handle()),
                                                  std::optional<StreamHold>(job.rank(1).stream->handle())};
  job.OnEveryRank([](RankId, PeerRank& self) {
    self.device->set_timeout(absl::Milliseconds(20));
    ASSERT_EQ(self.communicator->Barrier(Info("b")), absl::OkStatus());
    self.communicator->Abort();
    EXPECT_TRUE(self.device->is_abandoned());
  });
  job.OnEveryRank([](RankId, PeerRank& self) { self.communicator->Abort(); });
  for (std::optional<StreamHold>& kernel : trainers_kernels) kernel.reset();
  job.OnEveryRank([](RankId, PeerRank& self) { self.Finish(); });
}

TEST(PeerCommunicatorTest, ALateThreadOfASharedDeviceIsNamed) {
  PeerJob job(2, {.devices = 1});
  const DeviceMemory tensor = job.rank(0).Floats(std::vector<float>(kFew, 1));
  CallInfo info = Info("gradient");
  info.limits.deadline = absl::Milliseconds(30);
  const absl::Status status = job.rank(0).Allreduce(tensor, info);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("waited 30ms for rank 1 to give its GPU allreduce 'gradient'"));
  EXPECT_EQ(job.rank(0).communicator->failure(), status);
}

TEST(PeerCommunicatorTest, AFailureOfTheJobEndsTheWaitForALateThread) {
  PeerJob job(2, {.devices = 1});
  const DeviceMemory tensor = job.rank(0).Floats(std::vector<float>(kFew, 1));
  std::thread failing([&] { job.Fail(absl::UnavailableError("rank 1 has died")); });
  const absl::Status status = job.rank(0).Allreduce(tensor, Info("x"));
  failing.join();
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has died"));
}

// Returns the error that all ranks of a job get. It must be the same on all of them.
std::string Refusal(const FakeCuda::Options& options) {
  const PeerJob job(2, options);
  EXPECT_EQ(job.connected()[0], job.connected()[1]);
  EXPECT_EQ(job.connected()[0].code(), absl::StatusCode::kFailedPrecondition);
  return std::string(job.connected()[0].message());
}

TEST(PeerCommunicatorTest, RefusalsNameTheRankAndTheReason) {
  EXPECT_THAT(Refusal({.devices = 2, .sharing = FakeCuda::Options::Sharing::kNone}),
              HasSubstr("rank 0 cannot share the memory of its GPU with other ranks: cuda:0: sharing memory with other "
                        "ranks: operation not supported"));
  EXPECT_THAT(Refusal({.devices = 2, .sharing = FakeCuda::Options::Sharing::kSameDevice}),
              HasSubstr("rank 0 cannot share the memory of its GPU with other ranks: cuda:0: mapping the memory of "
                        "other ranks: invalid device ordinal"));
  EXPECT_THAT(Refusal({.devices = 2, .memory_bytes = 4096}),
              AllOf(HasSubstr("out of memory"), HasSubstr("of device memory for the memory that ranks share")));
}

TEST(PeerCommunicatorTest, ACommunicatorLeavesNothingOnItsDevice) {
  std::optional<PeerJob> job(std::in_place, 3, FakeCuda::Options{.devices = 2});
  job->OnEveryRank([](RankId, PeerRank& self) {
    const Group pair({0, 1});
    ASSERT_EQ(self.communicator->Barrier(Info("b", &pair)), absl::OkStatus());
    ASSERT_EQ(self.communicator->Barrier(Info("b")), absl::OkStatus());
    self.communicator.reset();
    self.host.reset();
    self.stream.reset();
    self.device.reset();
  });
  EXPECT_EQ(job->cuda().Leaks(), "");
}

}  // namespace
}  // namespace ronda::testing
