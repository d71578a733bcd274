// What ControlPlane promises, on each backend and with several numbers of ranks.
#include "runtime/control/control_plane.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/testing/backend_suite.h"

namespace ronda::testing {
namespace {

class ControlPlaneTest : public BackendTest {
 protected:
  ControlPlane& control(RankId rank) { return *transport(rank).control; }

  template <typename Body>
  void OnEveryRank(const Body& body) {
    BackendTest::OnEveryRank([&](RankId rank, Transport& transport) { body(rank, *transport.control); });
  }

  // Receives until `done` says so of everything that has come so far.
  template <typename Done>
  static ControlPlane::Inbox ReceiveUntil(ControlPlane& control, const Done& done) {
    ControlPlane::Inbox all;
    for (;;) {
      absl::StatusOr<ControlPlane::Inbox> more = control.Receive();
      EXPECT_TRUE(more.ok()) << more.status();
      if (!more.ok()) return all;
      for (ControlMessage& message : more->to_coordinator) all.to_coordinator.push_back(std::move(message));
      for (std::string& message : more->broadcasts) all.broadcasts.push_back(std::move(message));
      if (done(all)) return all;
      control.Wait(absl::InfiniteFuture());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, ControlPlaneTest, ::testing::ValuesIn(EveryBackend({1, 2, 5})), NameOfBackendRanks);

TEST_P(ControlPlaneTest, MessagesReachTheCoordinatorInTheOrderOfEachSender) {
  constexpr int kMessages = 200;
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(control.SendToCoordinator(absl::StrCat(i)), absl::OkStatus());
    if (rank != 0) return;
    const ControlPlane::Inbox inbox = ReceiveUntil(control, [&](const ControlPlane::Inbox& all) {
      return all.to_coordinator.size() == static_cast<size_t>(kMessages) * size();
    });
    std::vector<int> next(size(), 0);
    for (const ControlMessage& message : inbox.to_coordinator) {
      EXPECT_EQ(message.payload, absl::StrCat(next[message.from]++)) << "from rank " << message.from;
    }
    EXPECT_TRUE(inbox.broadcasts.empty());
  });
}

TEST_P(ControlPlaneTest, BroadcastsReachEveryRankInOrder) {
  constexpr size_t kMessages = 200;
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    for (size_t i = 0; rank == 0 && i < kMessages; ++i) ASSERT_EQ(control.Broadcast(absl::StrCat(i)), absl::OkStatus());
    const ControlPlane::Inbox inbox =
        ReceiveUntil(control, [&](const ControlPlane::Inbox& all) { return all.broadcasts.size() == kMessages; });
    for (size_t i = 0; i < kMessages; ++i) EXPECT_EQ(inbox.broadcasts[i], absl::StrCat(i));
    EXPECT_TRUE(inbox.to_coordinator.empty());
  });
}

// The others may be in a collective that waits for rank 0.
TEST_P(ControlPlaneTest, LongBroadcastsDoNotWaitForRanksThatReceiveNothing) {
  constexpr size_t kMessages = 3;
  const std::string text(300'000, 'x');
  for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(control(0).Broadcast(text), absl::OkStatus());
  OnEveryRank([&](RankId, ControlPlane& control) {
    const ControlPlane::Inbox inbox =
        ReceiveUntil(control, [&](const ControlPlane::Inbox& all) { return all.broadcasts.size() == kMessages; });
    EXPECT_EQ(inbox.broadcasts, std::vector<std::string>(kMessages, text));
  });
}

// All ranks send more than any ring holds while the coordinator does the same, before anybody receives.
TEST_P(ControlPlaneTest, LongMessagesBothWaysAtOnceDoNotDeadlock) {
  constexpr size_t kMessages = 3;
  const std::string text(300'000, 'x');
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(control.SendToCoordinator(text), absl::OkStatus());
    if (rank == 0) {
      for (size_t i = 0; i < kMessages; ++i) ASSERT_EQ(control.Broadcast(text), absl::OkStatus());
      const ControlPlane::Inbox inbox = ReceiveUntil(control, [&](const ControlPlane::Inbox& all) {
        return all.to_coordinator.size() == kMessages * static_cast<size_t>(size());
      });
      for (const ControlMessage& message : inbox.to_coordinator) EXPECT_TRUE(message.payload == text);
      ASSERT_EQ(control.Broadcast("end"), absl::OkStatus());
    }
    const auto has_end = [](const ControlPlane::Inbox& all) {
      return !all.broadcasts.empty() && all.broadcasts.back() == "end";
    };
    const std::vector<std::string> broadcasts = ReceiveUntil(control, has_end).broadcasts;
    // The coordinator may have taken its own before it looked for the end.
    if (rank != 0) {
      EXPECT_EQ(broadcasts, std::vector<std::string>({text, text, text, "end"}));
    }
  });
}

TEST_P(ControlPlaneTest, WakeEndsTheNextWait) {
  control(0).Wake();
  control(0).Wait(absl::InfiniteFuture());
}

TEST_P(ControlPlaneTest, WakeFromAnotherThreadEndsWait) {
  for (int i = 0; i < 20; ++i) {
    std::thread waking([&] { control(0).Wake(); });
    control(0).Wait(absl::InfiniteFuture());
    waking.join();
  }
}

TEST_P(ControlPlaneTest, CallOffWakesEveryRankAndStays) {
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    if (rank == size() - 1) control.CallOff(3);
    while (control.Receive()->called_off < 3) control.Wait(absl::InfiniteFuture());
    EXPECT_EQ(control.Receive()->called_off, 3U);
  });
}

TEST_P(ControlPlaneTest, HighestScheduleThatWasCalledOffCounts) {
  EXPECT_EQ(control(0).Receive()->called_off, 0U);
  control(0).CallOff(5);
  control(size() - 1).CallOff(2);
  for (RankId rank = 0; rank < size(); ++rank) EXPECT_EQ(control(rank).Receive()->called_off, 5U);
}

// As a thread that drives the engine does while the coordinator thread sleeps.
TEST_P(ControlPlaneTest, OneThreadMayWaitWhileAnotherSendsAndReceives) {
  std::atomic<bool> over{false};
  std::thread waiting([&] {
    while (!over) control(0).Wait(absl::InfiniteFuture());
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(control(0).SendToCoordinator("x"), absl::OkStatus());
    ASSERT_EQ(control(0).Receive()->to_coordinator.size(), 1U);
  }
  over = true;
  control(0).Wake();
  waiting.join();
}

TEST_P(ControlPlaneTest, WaitEndsAtItsDeadline) {
  const absl::Time deadline = absl::Now() + absl::Milliseconds(20);
  control(0).Wait(deadline);
  EXPECT_GE(absl::Now(), deadline);
}

TEST_P(ControlPlaneTest, FirstFailureReachesEveryRankWithTheSameText) {
  const RankId failing = size() - 1;
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    if (rank == failing) {
      control.Fail(absl::DataLossError("first"));
      control.Fail(absl::InternalError("second"));
    }
    while (control.failure().ok()) control.Wait(absl::InfiniteFuture());
    const absl::Status expected =
        absl::DataLossError(absl::StrCat("rank ", failing, " (host localhost, pid ", getpid(), "): first"));
    EXPECT_EQ(control.failure(), expected);
    EXPECT_EQ(control.SendToCoordinator("x"), expected);
    EXPECT_EQ(control.Receive().status(), expected);
    if (rank == 0) {
      EXPECT_EQ(control.Broadcast("x"), expected);
    }
  });
}

TEST_P(ControlPlaneTest, DepartureIsNoFailure) {
  OnEveryRank([&](RankId, ControlPlane& control) { control.Depart(); });
  for (RankId rank = 0; rank < size(); ++rank) EXPECT_EQ(control(rank).failure(), absl::OkStatus());
}

}  // namespace
}  // namespace ronda::testing
