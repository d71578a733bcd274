// SPDX-License-Identifier: Apache-2.0

// Tests jobs on two levels with a collective that cannot finish. The first error on any rank becomes the job's failure,
// as in the engine.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/testing/message_transports.h"
#include "tests/testing/run_ranks.h"

namespace ronda::testing {
namespace {

// Enough elements for several chunks, so that a worker can stop in the middle of a chunk.
constexpr size_t kCount = size_t{1} << 20;

constexpr uint64_t kSeed = 7;

absl::Status Allreduce(Transport& transport, size_t count, const WaitLimits& limits) {
  std::vector<float> data(count, 1.0f);
  const Segment segment = {.input = data.data(), .output = data.data(), .count = data.size()};
  return transport.communicator->Reduce({.info = {.label = "conv1", .limits = limits}, .segments = {&segment, 1}});
}

std::string NameOf(RankId rank) { return absl::StrCat("rank ", rank, " (host localhost, pid ", getpid(), ")"); }

// Returns the job's failure if `late` does not take part.
absl::Status FailureWithout(RankId late, const HostMap& map, size_t count) {
  std::vector<Transport> transports = ConnectHierarchicalTransports(map, kSeed);
  std::atomic<int> started{0};
  RunRanksOn(transports, [&](RankId rank, Transport& transport) {
    started.fetch_add(1);
    while (started.load() < static_cast<int>(transports.size())) std::this_thread::yield();
    if (rank == late) return;
    const absl::Status status = Allreduce(transport, count, {.deadline = absl::Seconds(1)});
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    transport.control->Fail(status);
  });
  return transports.front().control->failure();
}

// Ranks on the late rank's host wait for the late rank itself. A rank on the other host waits for a rank that itself
// waits for the late rank.
TEST(HierarchicalFailureTest, LateRankIsNamedWhereverItIs) {
  const HostMap map = {.hosts = {{0, 1}, {2, 3}}};
  for (RankId late : {0, 1, 3}) {
    for (size_t count : {size_t{1}, kCount}) {
      const absl::Status failure = FailureWithout(late, map, count);
      EXPECT_TRUE(absl::StrContains(failure.message(), absl::StrCat("waited 1s for ", NameOf(late)))) << failure;
    }
  }
}

TEST(HierarchicalFailureTest, RankAloneOnItsHostIsNamed) {
  const absl::Status failure = FailureWithout(2, {.hosts = {{0, 1}, {2}}}, kCount);
  EXPECT_TRUE(absl::StrContains(failure.message(), absl::StrCat("for ", NameOf(2)))) << failure;
}

TEST(HierarchicalFailureTest, FailureOfOneRankEndsTheCollectiveOfAllOthers) {
  std::vector<Transport> transports = ConnectHierarchicalTransports({.hosts = {{0, 1}, {2, 3}}}, kSeed);
  const absl::Status expected = absl::DataLossError(absl::StrCat(NameOf(3), ": disk on fire"));
  std::atomic<int> entering{0};
  RunRanksOn(transports, [&](RankId rank, Transport& transport) {
    if (rank == 3) {
      while (entering.load() < 3) std::this_thread::yield();
      transport.control->Fail(absl::DataLossError("disk on fire"));
      return;
    }
    entering.fetch_add(1);
    EXPECT_EQ(Allreduce(transport, kCount, {}), expected);
  });
}

TEST(HierarchicalFailureTest, EveryOperationHasTheDeadline) {
  constexpr RankId kLate = 3;
  const auto run = [](int operation, Transport& transport) {
    const CallInfo info = {.label = "b", .limits = {.deadline = absl::Milliseconds(50)}};
    char byte = 0;
    std::vector<char> all(4);
    const std::vector<size_t> bytes(16, 1);
    const absl::Span<const size_t> bytes_per_rank = absl::MakeConstSpan(bytes).first(4);
    Communicator& communicator = *transport.communicator;
    if (operation == 0) return communicator.Barrier(info);
    if (operation == 1) return communicator.Broadcast({.info = info, .data = &byte, .bytes = 1, .root = kLate});
    if (operation == 2) {
      return communicator.Allgather(
          {.info = info, .input = &byte, .output = all.data(), .bytes_per_rank = bytes_per_rank});
    }
    return communicator.Alltoall({.info = info, .input = "abcd", .output = all.data(), .bytes = bytes});
  };
  for (int operation = 0; operation < 4; ++operation) {
    std::vector<Transport> transports = ConnectHierarchicalTransports({.hosts = {{0, 1}, {2, 3}}}, kSeed);
    RunRanksOn(transports, [&](RankId rank, Transport& transport) {
      if (rank == kLate) return;
      const absl::Status status = run(operation, transport);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << operation << ": " << status;
      transport.control->Fail(status);
    });
  }
}

}  // namespace
}  // namespace ronda::testing
