// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/timeline/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ronda::testing {
namespace {

using ::testing::ElementsAre;

TimelineEvent Numbered(int number) { return {.number = number}; }

std::vector<int> Drained(EventQueue& queue) {
  std::vector<int> numbers;
  queue.Drain([&](const TimelineEvent& event) { numbers.push_back(event.number); });
  return numbers;
}

TEST(EventQueueTest, KeepsTheOrder) {
  EventQueue queue(4);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 3; ++i) queue.Push(Numbered(10 * round + i));
    EXPECT_THAT(Drained(queue), ElementsAre(10 * round, 10 * round + 1, 10 * round + 2));
  }
  EXPECT_EQ(queue.TakeDropped(), 0);
}

TEST(EventQueueTest, FullQueueDropsAndCountsEvents) {
  EventQueue queue(4);
  for (int i = 0; i < 7; ++i) queue.Push(Numbered(i));
  EXPECT_EQ(queue.TakeDropped(), 3);
  EXPECT_EQ(queue.TakeDropped(), 0);
  EXPECT_THAT(Drained(queue), ElementsAre(0, 1, 2, 3));
  queue.Push(Numbered(9));
  EXPECT_THAT(Drained(queue), ElementsAre(9));
}

TEST(EventQueueTest, FirstEventWakesTheReader) {
  EventQueue queue(8);
  std::atomic<int> seen{-1};
  std::thread reader([&] {
    queue.AwaitFirst();
    queue.Drain([&](const TimelineEvent& event) { seen.store(event.number); });
  });
  queue.Push(Numbered(5));
  reader.join();
  EXPECT_EQ(seen.load(), 5);
}

TEST(EventQueueTest, HalfFullRingEndsTheLingering) {
  EventQueue queue(8);
  std::thread reader([&] { queue.AwaitMore(absl::InfiniteDuration()); });
  for (int i = 0; i < 4; ++i) queue.Push(Numbered(i));
  reader.join();
  EXPECT_THAT(Drained(queue), ElementsAre(0, 1, 2, 3));
}

TEST(EventQueueTest, InterruptionEndsBothWaitsUntilItIsTakenBack) {
  EventQueue queue(8);
  std::thread reader([&] {
    queue.AwaitFirst();
    queue.AwaitMore(absl::InfiniteDuration());
  });
  queue.Interrupt();
  reader.join();
  queue.Resume();
  std::thread next([&] { queue.AwaitFirst(); });
  queue.Push(Numbered(1));
  next.join();
}

// Every event arrives in the order of its thread, or is counted as dropped. The reader never polls, so it must be
// woken.
TEST(EventQueueTest, ManyThreadsLoseNothingButWhatIsCounted) {
  constexpr int kThreads = 4, kEach = 20'000;
  constexpr uint64_t kAll = kThreads * kEach;
  EventQueue queue(256);
  std::vector<int> last(kThreads, -1);
  uint64_t taken = 0, ends_taken = 0, dropped = 0;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    while (!is_over.load()) {
      queue.AwaitFirst();
      queue.Drain([&](const TimelineEvent& event) {
        if (event.kind == TimelineKind::kCycle) {
          is_over.store(true);
          ++ends_taken;
          return;
        }
        EXPECT_GT(event.number % kEach, last[event.number / kEach]);
        last[event.number / kEach] = event.number % kEach;
        ++taken;
      });
      dropped += queue.TakeDropped();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&queue, t] {
      for (int i = 0; i < kEach; ++i) queue.Push(Numbered(t * kEach + i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Some events of this loop are dropped until the reader has made room.
  uint64_t ends = 0;
  for (; !is_over.load(); ++ends) {
    queue.Push({.kind = TimelineKind::kCycle});
    std::this_thread::yield();
  }
  reader.join();
  dropped += queue.TakeDropped();
  uint64_t ends_left = 0;
  queue.Drain([&](const TimelineEvent&) { ++ends_left; });
  EXPECT_EQ(taken + ends_taken + dropped + ends_left, kAll + ends);
  EXPECT_GT(taken, 0);
}

}  // namespace
}  // namespace ronda::testing
