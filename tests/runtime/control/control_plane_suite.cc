// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/control_plane_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"

namespace ronda::testing {
namespace {

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
    ASSERT_EQ(inbox.broadcasts.size(), kMessages);
    for (size_t i = 0; i < kMessages; ++i) EXPECT_EQ(inbox.broadcasts[i], absl::StrCat(i));
    EXPECT_TRUE(inbox.to_coordinator.empty());
  });
}

// Broadcast() must not wait for the other ranks, which may be in a collective that waits for rank 0.
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

// All ranks send more than a ring can hold before any rank receives. The coordinator also broadcasts more than a ring
// can hold.
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
    // In the calls above, the coordinator may have received its own broadcasts together with the reports.
    if (rank != 0) {
      EXPECT_EQ(broadcasts, std::vector<std::string>({text, text, text, "end"}));
    }
  });
}

TEST_P(ControlPlaneTest, WakeEndsTheNextWait) {
  const absl::Time deadline = Deadline();
  control(0).Wake();
  control(0).Wait(deadline);
  EXPECT_LT(SteadyNow(), deadline) << "Wake has not ended the next wait";
}

TEST_P(ControlPlaneTest, WakeFromAnotherThreadEndsWait) {
  for (int i = 0; i < 20; ++i) {
    const absl::Time deadline = Deadline();
    std::thread waking([&] { control(0).Wake(); });
    control(0).Wait(deadline);
    waking.join();
    ASSERT_LT(SteadyNow(), deadline) << "Wake has not ended the wait, attempt " << i;
  }
}

TEST_P(ControlPlaneTest, UnlockRequestWakesEveryRankAndStays) {
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    if (rank == size() - 1) control.RequestUnlock(3);
    ReceiveUntil(control, [](const ControlPlane::Inbox& all) { return all.unlock_requested >= 3; });
    EXPECT_EQ(control.Receive()->unlock_requested, 3U);
  });
}

TEST_P(ControlPlaneTest, HighestUnlockRequestCounts) {
  EXPECT_EQ(control(0).Receive()->unlock_requested, 0U);
  control(0).RequestUnlock(5);
  control(size() - 1).RequestUnlock(2);
  const auto has_highest = [](const ControlPlane::Inbox& all) { return all.unlock_requested >= 5; };
  for (RankId rank = 0; rank < size(); ++rank) {
    ReceiveUntil(control(rank), has_highest);
    EXPECT_EQ(control(rank).Receive()->unlock_requested, 5U);
  }
}

// In the engine, another thread may send and receive while the background thread sleeps in Wait().
TEST_P(ControlPlaneTest, OneThreadMayWaitWhileAnotherSendsAndReceives) {
  std::atomic<bool> over{false};
  const absl::Time deadline = Deadline();
  std::thread waiting([&] {
    while (!over && SteadyNow() < deadline) control(0).Wait(deadline);
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(control(0).SendToCoordinator("x"), absl::OkStatus());
    ASSERT_EQ(control(0).Receive()->to_coordinator.size(), 1U);
  }
  over = true;
  control(0).Wake();
  waiting.join();
  EXPECT_LT(SteadyNow(), deadline) << "Wake has not ended the wait of the other thread";
}

TEST_P(ControlPlaneTest, PollerFindsWhatOthersSend) {
  ControlPlane& coordinator = control(0);
  if (!coordinator.StartPolling()) GTEST_SKIP() << "there is no polling here";
  const RankId sender = size() - 1;
  ASSERT_EQ(control(sender).SendToCoordinator("report"), absl::OkStatus());
  const absl::Time deadline = Deadline();
  ControlPlane::Inbox inbox = *coordinator.Receive();
  // The coordinator polls repeatedly, because a message over a network may take longer than one polling period.
  while (inbox.to_coordinator.empty() && SteadyNow() < deadline) {
    coordinator.KeepPolling();
    inbox = *coordinator.Receive();
  }
  EXPECT_EQ(inbox.to_coordinator.size(), 1U);
  ASSERT_EQ(coordinator.Broadcast("list"), absl::OkStatus());
  EXPECT_EQ(coordinator.Receive()->broadcasts.size(), 1U);
  coordinator.StopPolling();
  for (RankId rank = 1; rank < size(); ++rank) {
    ReceiveUntil(control(rank), [](const ControlPlane::Inbox& all) { return all.broadcasts.size() == 1; });
  }
}

TEST_P(ControlPlaneTest, PollerGivesUpWhenNothingComes) {
  if (!control(0).StartPolling()) GTEST_SKIP() << "there is no polling here";
  while (control(0).KeepPolling()) EXPECT_TRUE(control(0).Receive().ok());
  control(0).StopPolling();
}

// A message that the poller misses must end Wait(). Otherwise the waiting thread would sleep until the deadline.
TEST_P(ControlPlaneTest, NewsThatThePollerMissesEndTheWait) {
  ControlPlane& coordinator = control(0);
  if (!coordinator.StartPolling()) GTEST_SKIP() << "there is no polling here";
  coordinator.StopPolling();
  const RankId sender = size() - 1;
  const auto expect_wait_ends = [&](const std::function<void()>& send) {
    while (!coordinator.Receive()->to_coordinator.empty()) {
    }
    coordinator.Wait(absl::InfinitePast());
    ASSERT_TRUE(coordinator.StartPolling());
    send();
    coordinator.StopPolling();
    const absl::Time deadline = Deadline();
    coordinator.Wait(deadline);
    EXPECT_LT(SteadyNow(), deadline);
  };
  expect_wait_ends([&] { ASSERT_EQ(control(sender).SendToCoordinator("x"), absl::OkStatus()); });
  EXPECT_EQ(coordinator.Receive()->to_coordinator.size(), 1U);
  expect_wait_ends([&] { coordinator.Wake(); });
  expect_wait_ends([&] { control(sender).RequestUnlock(7); });
  expect_wait_ends([&] { control(sender).Fail(absl::InternalError("x")); });
}

// A sender that polls gives the coordinator's poller a moment to poll again. If the poller does not, the sender wakes
// the coordinator.
TEST_P(ControlPlaneTest, MessageForAPollerThatDoesNotComeBackEndsTheWait) {
  ControlPlane& coordinator = control(0);
  ControlPlane& sender = control(size() - 1);
  if (size() == 1 || !coordinator.StartPolling()) GTEST_SKIP() << "there is no polling for others here";
  const absl::Time deadline = Deadline();
  const auto expect_wait_ends = [&](const std::function<void()>& poll) {
    coordinator.StopPolling();
    coordinator.Wait(absl::InfinitePast());
    ASSERT_TRUE(sender.StartPolling());
    ASSERT_EQ(sender.SendToCoordinator("x"), absl::OkStatus());
    poll();
    sender.StopPolling();
    coordinator.Wait(deadline);
    EXPECT_LT(SteadyNow(), deadline);
    ASSERT_TRUE(coordinator.StartPolling());
    EXPECT_EQ(coordinator.Receive()->to_coordinator.size(), 1U);
  };
  expect_wait_ends([] {});
  expect_wait_ends([&] {
    while (sender.KeepPolling()) EXPECT_TRUE(sender.Receive().ok());
  });
  coordinator.StopPolling();
}

TEST_P(ControlPlaneTest, WaitEndsAtItsDeadline) {
  const absl::Time deadline = SteadyNow() + absl::Milliseconds(20);
  control(0).Wait(deadline);
  EXPECT_GE(SteadyNow(), deadline);
}

TEST_P(ControlPlaneTest, FirstFailureReachesEveryRankWithTheSameText) {
  const RankId failing = size() - 1;
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    if (rank == failing) {
      control.Fail(absl::DataLossError("first"));
      control.Fail(absl::InternalError("second"));
    }
    const absl::Time deadline = Deadline();
    while (control.failure().ok() && SteadyNow() < deadline) control.Wait(deadline);
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

TEST_P(ControlPlaneTest, RanksThatFailAtOnceReportTheSame) {
  std::vector<absl::Status> failures(static_cast<size_t>(size()));
  OnEveryRank([&](RankId rank, ControlPlane& control) {
    control.Fail(absl::InternalError(absl::StrCat("failure ", rank)));
    failures[static_cast<size_t>(rank)] = control.failure();  // the rank knows the failure at once
  });
  EXPECT_FALSE(failures[0].ok());
  for (const absl::Status& failure : failures) EXPECT_EQ(failure, failures[0]);
}

TEST_P(ControlPlaneTest, DepartureIsNoFailure) {
  OnEveryRank([&](RankId, ControlPlane& control) { control.Depart(); });
  for (RankId rank = 0; rank < size(); ++rank) EXPECT_EQ(control(rank).failure(), absl::OkStatus());
}

// Rank 1 may have ranks below it in the tree, which receive all messages through rank 1.
TEST_P(ControlPlaneTest, AnEndWithoutDepartureFailsTheJob) {
  if (size() == 1) GTEST_SKIP() << "a rank alone has nobody to tell";
  Destroy(1);
  const absl::Time deadline = Deadline();
  for (RankId rank = 0; rank < size(); ++rank) {
    if (rank == 1) continue;
    while (control(rank).failure().ok() && SteadyNow() < deadline) {
      control(rank).Receive().IgnoreError();
      control(rank).Wait(SteadyNow() + absl::Milliseconds(10));
    }
    EXPECT_THAT(control(rank).failure().message(), ::testing::HasSubstr("has left before the job ended")) << rank;
    EXPECT_THAT(control(rank).failure().message(), ::testing::HasSubstr("rank 1")) << rank;
  }
}

}  // namespace
}  // namespace ronda::testing
