// SPDX-License-Identifier: Apache-2.0

// Tests the errors of collectives that cannot finish, for each backend and several numbers of ranks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/collectives/communicator.h"
#include "runtime/monitor/flight_recorder.h"
#include "tests/testing/backends.h"

namespace ronda::testing {
namespace {

// Enough elements for many chunks, so that a rank can stop in the middle of a collective.
constexpr size_t kCount = 100'000;

class CommunicatorFailureTest : public BackendTest {
 protected:
  // Returns the rank that does not take part in the collective.
  RankId late() const { return size() - 1; }
  std::string LateName() const { return absl::StrCat("rank ", late(), " (host localhost, pid ", getpid(), ")"); }

  static absl::Status Allreduce(Transport& transport, const WaitLimits& limits = {}) {
    std::vector<float> data(kCount);
    const Segment segment = {.input = data.data(), .output = data.data(), .count = data.size()};
    return transport.communicator->Reduce(
        {.info = {.label = "conv1/weight and 9 more", .limits = limits}, .segments = {&segment, 1}});
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, CommunicatorFailureTest, ::testing::ValuesIn(EveryFlatBackend({2, 3, 5})),
                         NameOfBackendRanks);

TEST_P(CommunicatorFailureTest, LateRankIsNamedAfterTheDeadline) {
  // All ranks start together: on a busy machine, a thread that starts late would otherwise be named as the late rank.
  std::atomic<int> started{0};
  OnEveryRank([&](RankId rank, Transport& transport) {
    if (rank == late()) transport.flights->Of(rank).Record(FlightKind::kSubmitted, OpType::kBroadcast, "conv9", 12);
    started.fetch_add(1);
    while (started.load() < size()) std::this_thread::yield();
    if (rank == late()) return;
    const absl::Status status = Allreduce(transport, {.deadline = absl::Milliseconds(300)});
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    for (const std::string& part :
         {std::string("waited 300ms for "), LateName(),
          std::string("allreduce 'conv1/weight and 9 more', 0 of 400000 bytes done"),
          absl::StrCat("rank ", late(), " did last, "), std::string("submitted broadcast 'conv9'")}) {
      EXPECT_TRUE(absl::StrContains(status.message(), part)) << status << " lacks " << part;
    }
  });
}

TEST_P(CommunicatorFailureTest, LateRankIsWarnedOfAndThenWaitedForAgain) {
  ::testing::internal::CaptureStderr();
  OnEveryRank([&](RankId rank, Transport& transport) {
    // If a rank's last event is a wait, the rank has printed its warning.
    for (RankId other = 0; rank == late() && other < late(); ++other) {
      const auto is_waiting = [&] {
        const std::optional<FlightEvent> last = transport.flights->Of(other).Last();
        return last.has_value() && last->kind == FlightKind::kWaiting;
      };
      while (!is_waiting()) std::this_thread::yield();
    }
    EXPECT_EQ(Allreduce(transport, {.warning = absl::Milliseconds(20), .deadline = absl::Seconds(50)}),
              absl::OkStatus());
  });
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  // On a busy machine other ranks may also be late, and warnings may name them first. But the slowest of the other
  // ranks waits only for late(), and its warning names late().
  const std::string warning = absl::StrCat("W has waited 20ms for ", LateName(),
                                           " in allreduce 'conv1/weight and 9 more', 0 of 400000 bytes done; rank ",
                                           late(), " has done nothing yet\n");
  EXPECT_TRUE(absl::StrContains(warnings, warning)) << warnings;
  for (RankId rank = 0; rank < late(); ++rank) {
    EXPECT_TRUE(absl::StrContains(warnings, absl::StrCat("ronda[", rank, "] W has waited 20ms for rank "))) << warnings;
  }
}

// Runs an operation that is not a reduction, with one byte per rank. The last rank is the root.
absl::Status RunOperation(OpType op, Communicator& communicator, const CallInfo& info) {
  const size_t size = static_cast<size_t>(communicator.size());
  std::string input(size, 'x');
  std::vector<char> output(size);
  const std::vector<size_t> ones(size * size, 1);
  switch (op) {
    case OpType::kBroadcast:
      return communicator.Broadcast({.info = info, .data = output.data(), .bytes = 1, .root = communicator.size() - 1});
    case OpType::kAllgather:
      return communicator.Allgather({.info = info,
                                     .input = input.data(),
                                     .output = output.data(),
                                     .bytes_per_rank = absl::MakeSpan(ones).first(size)});
    case OpType::kAlltoall:
      return communicator.Alltoall({.info = info, .input = input.data(), .output = output.data(), .bytes = ones});
    default:
      return communicator.Barrier(info);
  }
}

TEST_P(CommunicatorFailureTest, EveryOperationHasTheDeadline) {
  for (OpType op : {OpType::kBarrier, OpType::kBroadcast, OpType::kAllgather, OpType::kAlltoall}) {
    // A communicator cannot be used after an error, so each operation gets new communicators.
    std::vector<Transport> transports = ConnectRanks(GetParam().backend, {.size = size()});
    RunRanksOn(transports, [&](RankId rank, Transport& transport) {
      if (rank == late()) return;
      const CallInfo info = {.label = "b", .limits = {.deadline = absl::Milliseconds(50)}};
      const absl::Status status = RunOperation(op, *transport.communicator, info);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << Name(op) << ", rank " << rank << ": " << status;
    });
  }
}

TEST_P(CommunicatorFailureTest, FailureOfOneRankEndsTheCollectiveOfAllOthers) {
  const absl::Status expected = absl::DataLossError(absl::StrCat(LateName(), ": disk on fire"));
  std::atomic<int> entering{0};
  OnEveryRank([&](RankId rank, Transport& transport) {
    if (rank == late()) {
      while (entering.load() < size() - 1) std::this_thread::yield();
      transport.control->Fail(absl::DataLossError("disk on fire"));
    } else {
      entering.fetch_add(1);
      EXPECT_EQ(Allreduce(transport), expected);
    }
    EXPECT_EQ(transport.communicator->Barrier({.label = "after"}), expected);
  });
}

TEST_P(CommunicatorFailureTest, RankThatHasLeftIsNamedAtOnce) {
  if (!SaysWhoHasLeft(GetParam().backend)) GTEST_SKIP() << "messages do not say who has left";
  OnEveryRank([&](RankId rank, Transport& transport) {
    if (rank == late()) return transport.control->Depart();
    const absl::Status status = Allreduce(transport);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), LateName())) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "left")) << status;
  });
}

TEST_P(CommunicatorFailureTest, RankThatDepartsAfterItsPartDisturbsNoOther) {
  OnEveryRank([&](RankId, Transport& transport) {
    EXPECT_EQ(Allreduce(transport), absl::OkStatus());
    transport.control->Depart();
  });
}

}  // namespace
}  // namespace ronda::testing
