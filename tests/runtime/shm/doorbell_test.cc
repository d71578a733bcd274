// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/doorbell.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "runtime/base/clock.h"

namespace ronda {
namespace {

using Poller = Doorbell::Poller;

TEST(Doorbell, RingsAreForSleepersWhileNobodyPolls) {
  Doorbell bell;
  bell.Ring();
  bell.RingUnlessPolled();
  EXPECT_EQ(bell.Rings(), 2u);
  EXPECT_EQ(bell.RingsWhilePolled(), 0u);
}

TEST(Doorbell, RingsAreForThePollerAlone) {
  Doorbell bell;
  bell.StartPolling();
  const uint32_t seen = bell.RingsWhilePolled();
  bell.Ring();
  bell.RingUnlessPolled();
  EXPECT_EQ(bell.Rings(), 0u);
  EXPECT_EQ(bell.RingsWhilePolled(), seen + 1) << "the other ring is for a condition that the poller looks at again";
  EXPECT_TRUE(bell.StopPolling(seen, Poller::kNone));
  bell.Ring();
  EXPECT_EQ(bell.Rings(), 1u);
}

TEST(Doorbell, PollerThatHasSeenAllRingsMissesNone) {
  Doorbell bell;
  bell.StartPolling();
  bell.Ring();
  EXPECT_FALSE(bell.StopPolling(bell.RingsWhilePolled(), Poller::kNone));
}

TEST(Doorbell, PollerIsExpectedUntilItHasNotCome) {
  Doorbell bell;
  EXPECT_FALSE(bell.IsPollerExpected());
  bell.StartPolling();
  EXPECT_FALSE(bell.IsPollerExpected()) << "it is there";
  EXPECT_FALSE(bell.StopPolling(bell.RingsWhilePolled(), Poller::kComesBack));
  EXPECT_TRUE(bell.IsPollerExpected());
  bell.Ring();
  EXPECT_EQ(bell.Rings(), 1u) << "for the sleepers";
  EXPECT_TRUE(bell.IsPollerExpected());
  bell.RingUnlessPolled();
  EXPECT_EQ(bell.Rings(), 2u);
  EXPECT_FALSE(bell.IsPollerExpected());
}

// A thread counts and rings. This thread polls for a moment, then sleeps, again and again. A lost ring would leave it
// asleep.
void ExpectNoCountIsMissed(void (Doorbell::*ring)(), Poller leaves_as = Poller::kNone) {
  constexpr int kCounts = 20000;
  Doorbell bell;
  std::atomic<int> count{0};
  std::atomic<int> seen{0};
  std::thread ringer([&] {
    for (int i = 1; i <= kCounts; ++i) {
      count.store(i, std::memory_order_seq_cst);
      (bell.*ring)();
      while (seen.load() < i) std::this_thread::yield();
    }
  });
  for (int expected = 1; expected <= kCounts; ++expected) {
    bell.StartPolling();
    const uint32_t rings = bell.RingsWhilePolled();
    const bool found = count.load() >= expected;
    if (bell.StopPolling(rings, leaves_as) || count.load() >= expected) bell.Ring();
    for (uint32_t heard = bell.Rings(); !found && count.load() < expected; heard = bell.Rings()) {
      const absl::Time asleep = SteadyNow();
      bell.Sleep(heard, absl::Minutes(1));
      if (SteadyNow() - asleep < absl::Minutes(1)) continue;
      ADD_FAILURE() << "no ring for count " << expected;
      seen.store(kCounts);  // so that the other thread ends
      ringer.join();
      return;
    }
    ASSERT_GE(count.load(), expected);
    seen.store(expected);
  }
  ringer.join();
}

TEST(Doorbell, NoRingIsLostBetweenPollingAndSleeping) { ExpectNoCountIsMissed(&Doorbell::Ring); }

TEST(Doorbell, NoConditionIsMissedBetweenPollingAndSleeping) { ExpectNoCountIsMissed(&Doorbell::RingUnlessPolled); }

TEST(Doorbell, NoConditionIsMissedWhileThePollerIsExpected) {
  ExpectNoCountIsMissed(&Doorbell::RingUnlessPolled, Poller::kComesBack);
}

}  // namespace
}  // namespace ronda
