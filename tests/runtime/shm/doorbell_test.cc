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
  Doorbell doorbell;
  doorbell.Ring();
  doorbell.RingUnlessPolled();
  EXPECT_EQ(doorbell.Rings(), 2u);
  EXPECT_EQ(doorbell.RingsWhilePolled(), 0u);
}

TEST(Doorbell, RingsAreForThePollerAlone) {
  Doorbell doorbell;
  doorbell.StartPolling();
  const uint32_t seen = doorbell.RingsWhilePolled();
  doorbell.Ring();
  doorbell.RingUnlessPolled();
  EXPECT_EQ(doorbell.Rings(), 0u);
  EXPECT_EQ(doorbell.RingsWhilePolled(), seen + 1)
      << "the other ring is for a condition that the poller looks at again";
  EXPECT_TRUE(doorbell.StopPolling(seen, Poller::kNone));
  doorbell.Ring();
  EXPECT_EQ(doorbell.Rings(), 1u);
}

TEST(Doorbell, PollerThatHasSeenAllRingsMissesNone) {
  Doorbell doorbell;
  doorbell.StartPolling();
  doorbell.Ring();
  EXPECT_FALSE(doorbell.StopPolling(doorbell.RingsWhilePolled(), Poller::kNone));
}

TEST(Doorbell, PollerIsExpectedUntilItHasNotCome) {
  Doorbell doorbell;
  EXPECT_FALSE(doorbell.IsPollerExpected());
  doorbell.StartPolling();
  EXPECT_FALSE(doorbell.IsPollerExpected()) << "it is there";
  EXPECT_FALSE(doorbell.StopPolling(doorbell.RingsWhilePolled(), Poller::kComesBack));
  EXPECT_TRUE(doorbell.IsPollerExpected());
  doorbell.Ring();
  EXPECT_EQ(doorbell.Rings(), 1u) << "for the sleepers";
  EXPECT_TRUE(doorbell.IsPollerExpected());
  doorbell.RingUnlessPolled();
  EXPECT_EQ(doorbell.Rings(), 2u);
  EXPECT_FALSE(doorbell.IsPollerExpected());
}

// Another thread increases a counter, and rings the doorbell after each increase. This thread polls for a moment and
// then sleeps, again and again. If a ring were lost, this thread would sleep forever.
void ExpectNoCountIsMissed(void (Doorbell::*ring)(), Poller leaves_as = Poller::kNone) {
  constexpr int kCounts = 20000;
  Doorbell doorbell;
  std::atomic<int> count{0};
  std::atomic<int> seen{0};
  std::thread ringer([&] {
    for (int i = 1; i <= kCounts; ++i) {
      count.store(i, std::memory_order_seq_cst);
      (doorbell.*ring)();
      while (seen.load() < i) std::this_thread::yield();
    }
  });
  for (int expected = 1; expected <= kCounts; ++expected) {
    doorbell.StartPolling();
    const uint32_t rings = doorbell.RingsWhilePolled();
    const bool found = count.load() >= expected;
    if (doorbell.StopPolling(rings, leaves_as) || count.load() >= expected) doorbell.Ring();
    for (uint32_t heard = doorbell.Rings(); !found && count.load() < expected; heard = doorbell.Rings()) {
      const absl::Time asleep = SteadyNow();
      doorbell.Sleep(heard, absl::Minutes(1));
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
