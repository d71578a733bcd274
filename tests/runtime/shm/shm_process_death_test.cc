// SPDX-License-Identifier: Apache-2.0

// Tests which errors the other ranks get when a rank's process has ended, with real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/shm/shm_attach.h"
#include "tests/runtime/shm/published_memory.h"
#include "tests/testing/await.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using testing::ForkedChild;

// A time limit far above the promised second, because the machine may be busy.
constexpr absl::Duration kGenerousBound = absl::Seconds(10);

ShmWorld::Options OptionsOf(absl::string_view job, RankId rank, int size) {
  return {.job_id = absl::StrCat(job, "-", getppid()), .rank = rank, .size = size};
}

absl::Status AllreduceOnce(const Transport& transport, std::vector<float>& data) {
  const Segment segment = {.input = data.data(), .output = data.data(), .count = data.size()};
  return transport.communicator->Reduce({.info = {.label = "weights"}, .segments = {&segment, 1}});
}

// Reduces repeatedly until a reduction fails, and returns the time and the text of the failure.
std::string ReduceUntilFailure(const ShmWorld::Options& options, const ForkedChild::SayReady& say_ready) {
  absl::StatusOr<Transport> transport = ConnectShmTransport(options);
  if (!transport.ok()) return transport.status().ToString();
  std::vector<float> data(1 << 20);
  absl::Status status = AllreduceOnce(*transport, data);
  say_ready();
  while (status.ok()) status = AllreduceOnce(*transport, data);
  return absl::StrCat(absl::ToUnixMicros(SteadyNow()), " ", status.ToString());
}

struct Outcome {
  absl::Time time;
  std::string status;
};

Outcome OutcomeOf(ForkedChild& child) {
  const std::vector<std::string> parts = absl::StrSplit(child.Result(), absl::MaxSplits(' ', 1));
  int64_t micros = 0;
  EXPECT_TRUE(parts.size() == 2 && absl::SimpleAtoi(parts[0], &micros)) << parts[0];
  return {.time = absl::FromUnixMicros(micros), .status = parts.back()};
}

TEST(ShmProcessDeathTest, RankKilledInTheMiddleOfAnAllreduceIsNamedToAllOthers) {
  constexpr int kSize = 3;
  constexpr RankId kVictim = 1;
  std::vector<std::unique_ptr<ForkedChild>> ranks;
  for (RankId rank = 0; rank < kSize; ++rank) {
    ranks.push_back(std::make_unique<ForkedChild>([rank](const ForkedChild::SayReady& say_ready) {
      return ReduceUntilFailure(OptionsOf("killed", rank, kSize), say_ready);
    }));
  }
  ranks[kVictim]->WaitUntilReady();
  const absl::Time killed = SteadyNow();
  ranks[kVictim]->Kill(SIGKILL);
  for (RankId rank : {0, 2}) {
    const Outcome outcome = OutcomeOf(*ranks[rank]);
    EXPECT_EQ(outcome.status, absl::StrCat("UNAVAILABLE: rank 1 (host localhost, pid ", ranks[kVictim]->pid(),
                                           ") died; it has done nothing yet"));
    EXPECT_LT(outcome.time - killed, kGenerousBound);
    std::cout << "rank " << rank << " knew after " << outcome.time - killed << "\n";
  }
  EXPECT_FALSE(testing::IsLink(absl::StrCat("/dev/shm/ronda-killed-", getpid())));
}

// A job that is killed while its ranks connect leaves a link behind, but no memory. The user's next job removes the
// link.
TEST(ShmProcessDeathTest, NextJobRemovesTheLinkOfAKilledStart) {
  const std::string left = absl::StrCat("/dev/shm/ronda-left-", getpid());
  ForkedChild lone(
      [](const ForkedChild::SayReady&) { return ConnectShmTransport(OptionsOf("left", 0, 2)).status().ToString(); });
  ASSERT_TRUE(testing::Await([&left] { return testing::AttachedRanks(left) >= 1; }));
  const auto begin_another = [] {
    ForkedChild other([](const ForkedChild::SayReady&) {
      return ConnectShmTransport(OptionsOf("another", 0, 1)).status().ToString();
    });
    EXPECT_EQ(other.Result(), "OK");
  };
  begin_another();
  EXPECT_EQ(testing::AttachedRanks(left), 1u) << "the other rank may still come";
  lone.Kill(SIGKILL);
  EXPECT_EQ(lone.Result(), "");
  // A dying process may close its result pipe before it releases the memory, so the test waits for its end.
  siginfo_t info = {};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(lone.pid()), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(testing::IsLink(left));
  begin_another();
  EXPECT_FALSE(testing::IsLink(left));
}

// Ranks that vote wait for the votes of all ranks. When a rank is killed, the waiting ranks must learn that its vote
// will not come.
TEST(ShmProcessDeathTest, RankKilledBeforeItsVoteIsNamedToAllOthers) {
  constexpr int kSize = 3;
  std::vector<std::unique_ptr<ForkedChild>> ranks;
  for (RankId rank = 0; rank < kSize; ++rank) {
    ranks.push_back(std::make_unique<ForkedChild>([rank](const ForkedChild::SayReady& say_ready) {
      absl::StatusOr<Transport> transport = ConnectShmTransport(OptionsOf("voting", rank, kSize));
      if (!transport.ok()) return transport.status().ToString();
      say_ready();
      if (rank == 1) pause();
      const auto when_late = [] {};
      Ballot ballot = {.when_late = when_late};
      return transport->communicator->Barrier({.label = "vote", .ballot = &ballot}).ToString();
    }));
  }
  for (const std::unique_ptr<ForkedChild>& rank : ranks) rank->WaitUntilReady();
  ranks[1]->Kill(SIGKILL);
  for (RankId rank : {0, 2}) {
    EXPECT_EQ(ranks[rank]->Result(), absl::StrCat("UNAVAILABLE: rank 1 (host localhost, pid ", ranks[1]->pid(),
                                                  ") died; it has done nothing yet"));
  }
}

// Rank 1 departs and ends, which is no failure. After that, rank 2 ends without departure, so the failure names rank 2.
TEST(ShmProcessDeathTest, EndAfterDepartureIsNoFailureAndEndWithoutItIs) {
  constexpr int kSize = 3;
  ForkedChild observer([](const ForkedChild::SayReady&) {
    absl::StatusOr<Transport> transport = ConnectShmTransport(OptionsOf("departed", 0, kSize));
    while (transport->control->failure().ok()) transport->control->Wait(absl::InfiniteFuture());
    return transport->control->failure().ToString();
  });
  ForkedChild leaving([](const ForkedChild::SayReady&) {
    ConnectShmTransport(OptionsOf("departed", 1, kSize))->control->Depart();
    return std::string("left");
  });
  ForkedChild ending([](const ForkedChild::SayReady& say_ready) {
    absl::StatusOr<Transport> transport = ConnectShmTransport(OptionsOf("departed", 2, kSize));
    transport->flights->Of(2).Record(FlightKind::kFinished, OpType::kAllreduce, "weights", 8);
    say_ready();
    pause();
    return std::string();
  });
  EXPECT_EQ(leaving.Result(), "left");
  ending.WaitUntilReady();
  ending.Kill(SIGKILL);
  const std::string result = observer.Result();
  const std::string death =
      absl::StrCat("UNAVAILABLE: rank 2 (host localhost, pid ", ending.pid(), ") died; it did last, ");
  EXPECT_TRUE(absl::StartsWith(result, death)) << result;
  EXPECT_TRUE(absl::EndsWith(result, " ago: finished allreduce 'weights' (8 bytes)")) << result;
}

// In a job of 40 ranks, no rank watches all other ranks: ranks 6 to 12 do not watch rank 5. Rank 4, which watches rank
// 5, also dies. Still, all other ranks must get the same failure.
TEST(ShmProcessDeathTest, DeathIsKnownToRanksThatDoNotWatchTheDeadRank) {
  constexpr int kSize = 40;
  std::vector<std::unique_ptr<ForkedChild>> ranks;
  for (RankId rank = 0; rank < kSize; ++rank) {
    ranks.push_back(std::make_unique<ForkedChild>([rank](const ForkedChild::SayReady& say_ready) {
      ShmWorld::Options options = OptionsOf("many", rank, kSize);
      options.slot_bytes = kShmPageBytes;
      absl::StatusOr<Transport> transport = ConnectShmTransport(options);
      if (!transport.ok()) return transport.status().ToString();
      say_ready();
      while (transport->control->failure().ok()) transport->control->Wait(absl::InfiniteFuture());
      return transport->control->failure().ToString();
    }));
  }
  for (const std::unique_ptr<ForkedChild>& rank : ranks) rank->WaitUntilReady();
  for (const RankId dead : {4, 5}) ranks[static_cast<size_t>(dead)]->Kill(SIGKILL);
  const std::string first = ranks[0]->Result();
  EXPECT_THAT(first, ::testing::MatchesRegex("UNAVAILABLE: rank [45] \\(host localhost, pid [0-9]+\\) died; .*"));
  for (RankId rank = 1; rank < kSize; ++rank) {
    if (rank == 4 || rank == 5) continue;
    EXPECT_EQ(ranks[static_cast<size_t>(rank)]->Result(), first) << "rank " << rank;
  }
}

TEST(ShmProcessDeathTest, AnnouncedExitIsAFailureOnceTheProcessIsGone) {
  ForkedChild observer([](const ForkedChild::SayReady&) {
    absl::StatusOr<Transport> transport = ConnectShmTransport(OptionsOf("exiting", 0, 2));
    while (transport->control->failure().ok()) transport->control->Wait(absl::InfiniteFuture());
    return transport->control->failure().ToString();
  });
  ForkedChild ending([](const ForkedChild::SayReady& say_ready) {
    absl::StatusOr<Transport> transport = ConnectShmTransport(OptionsOf("exiting", 1, 2));
    transport->control->AnnounceExit();
    EXPECT_TRUE(transport->control->failure().ok());
    say_ready();
    pause();
    return std::string();
  });
  ending.WaitUntilReady();
  ending.Kill(SIGKILL);
  EXPECT_EQ(observer.Result(), absl::StrCat("UNAVAILABLE: rank 1 (host localhost, pid ", ending.pid(),
                                            ") has ended without ronda_shutdown(); it has done nothing yet"));
}

}  // namespace
}  // namespace ronda
