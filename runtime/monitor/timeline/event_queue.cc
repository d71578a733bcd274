// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/timeline/event_queue.h"

#include "runtime/base/clock.h"
#include "runtime/base/logging.h"

namespace ronda {

EventQueue::EventQueue(size_t capacity) : capacity_(capacity), slots_(new Slot[capacity]) {
  RONDA_CHECK(capacity > 0 && (capacity & (capacity - 1)) == 0);
  for (size_t i = 0; i < capacity; ++i) slots_[i].sequence.store(i, std::memory_order_relaxed);
}

void EventQueue::Push(const TimelineEvent& event) {
  uint64_t ticket = tail_.load(std::memory_order_relaxed);
  Slot* slot = nullptr;
  while (true) {
    slot = &slots_[ticket & (capacity_ - 1)];
    const uint64_t sequence = slot->sequence.load(std::memory_order_acquire);
    if (sequence < ticket) {
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (sequence > ticket) {
      ticket = tail_.load(std::memory_order_relaxed);
    } else if (tail_.compare_exchange_weak(ticket, ticket + 1)) {
      break;
    }
  }
  slot->event = event;
  slot->sequence.store(ticket + 1, std::memory_order_release);
  if (IsWorthWaking()) Wake();
}

bool EventQueue::IsWorthWaking() const {
  switch (reader_.load()) {
    case Reader::kAwake:
      return false;
    case Reader::kAwaitsFirst:
      return true;
    case Reader::kAwaitsMore:
      return Waiting() >= capacity_ / 2;
  }
  return false;
}

void EventQueue::Wake() {
  // If several threads find the reader asleep, only one of them wakes it.
  if (reader_.exchange(Reader::kAwake) == Reader::kAwake) return;
  { const MutexLock lock(&mu_); }
  changed_.NotifyAll();
}

void EventQueue::AwaitFirst() {
  MutexLock lock(&mu_);
  reader_.store(Reader::kAwaitsFirst);
  while (!interrupted_ && Waiting() == 0) {
    changed_.Wait(&mu_);
    reader_.store(Reader::kAwaitsFirst);
  }
  reader_.store(Reader::kAwake);
}

void EventQueue::AwaitMore(absl::Duration linger) {
  const absl::Duration end = MonotonicTime() + linger;
  MutexLock lock(&mu_);
  reader_.store(Reader::kAwaitsMore);
  while (!interrupted_ && Waiting() < capacity_ / 2) {
    const absl::Duration left = end - MonotonicTime();
    if (left <= absl::ZeroDuration()) break;
    changed_.WaitFor(&mu_, left);
    reader_.store(Reader::kAwaitsMore);
  }
  reader_.store(Reader::kAwake);
}

void EventQueue::Drain(absl::FunctionRef<void(const TimelineEvent&)> take) {
  uint64_t ticket = head_.load(std::memory_order_relaxed);
  // Reads only the events that are in the ring now, so that the loop ends.
  const uint64_t end = tail_.load();
  for (; ticket < end; ++ticket) {
    Slot& slot = slots_[ticket & (capacity_ - 1)];
    if (slot.sequence.load(std::memory_order_acquire) != ticket + 1) break;  // still being written
    take(slot.event);
    slot.sequence.store(ticket + capacity_, std::memory_order_release);
    head_.store(ticket + 1, std::memory_order_relaxed);
  }
}

void EventQueue::Interrupt() {
  {
    const MutexLock lock(&mu_);
    interrupted_ = true;
  }
  changed_.NotifyAll();
}

void EventQueue::Resume() {
  const MutexLock lock(&mu_);
  interrupted_ = false;
}

}  // namespace ronda
