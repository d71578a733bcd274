// SPDX-License-Identifier: Apache-2.0

// The threads that look for messages: the thread in Wait, a thread that polls, and the control plane's own thread.
#include <sched.h>

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/poll.h"
#include "runtime/control/messages/message_plane.h"

namespace ronda {
namespace {

// If messages do not wake threads, a thread in Wait looks continuously for this long after the last message. An answer
// takes about this long.
constexpr absl::Duration kLookOn = absl::Microseconds(100);
constexpr int kPauseShare = 8;
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);
// After this time without a message, Wait stops looking for messages, and the control plane's thread looks instead.
constexpr absl::Duration kAttentive = absl::Milliseconds(20);

// These two pauses apply if messages wake threads. While another thread polls, Wait sleeps for kPauseWhilePolled at a
// time. Every kRelayPause, the control plane's thread checks whether another thread still looks for messages.
constexpr absl::Duration kPauseWhilePolled = absl::Milliseconds(1);
constexpr absl::Duration kRelayPause = absl::Milliseconds(5);
// A thread that sleeps in poll() checks this often whether the program has closed the descriptors.
constexpr absl::Duration kLongestPoll = absl::Seconds(1);

}  // namespace

void MessageControlPlane::WakeWaitLocked() {
  waiting_.is_woken = true;
  if (watch_.by == Watcher::kWait) {
    WakeWatcherLocked();
  } else {
    woken_changed_.NotifyAll();
  }
}

void MessageControlPlane::WakeRelayLocked() {
  if (watch_.by == Watcher::kRelay) {
    WakeWatcherLocked();
  } else {
    relay_changed_.NotifyAll();
  }
}

void MessageControlPlane::WakeWatcherLocked() {
  if (!std::exchange(watch_.is_woken, true)) pipe_->Wake();
}

void MessageControlPlane::WatchLocked(Watcher watcher, absl::Duration longest) {
  if (cannot_poll_) {
    state_changed_.WaitFor(&mu_, std::min(longest, kRelayPause));
  } else {
    PollLocked(watcher, longest);
  }
  MoveLocked();
  // Only one thread at a time can poll the descriptors, so a thread that waited for this one may poll now.
  if (watcher != Watcher::kWait) woken_changed_.NotifyAll();
  state_changed_.NotifyAll();
}

void MessageControlPlane::PollLocked(Watcher watcher, absl::Duration longest) {
  watched_.clear();
  watched_.push_back({.fd = pipe_->reader(), .events = POLLIN, .revents = 0});
  links_->ListDescriptors(&watched_);
  watch_.by = watcher;
  mu_.Unlock();
  const absl::StatusOr<int> ready = PollDescriptors(absl::MakeSpan(watched_), std::min(longest, kLongestPoll));
  mu_.Lock();
  watch_.by = Watcher::kNobody;
  const bool is_woken = std::exchange(watch_.is_woken, false);
  if (!ready.ok()) return GiveUpPollingLocked(ready.status());
  if (is_woken) pipe_->Clear();
  const bool may_have_lost_pipe = *ready == 0 || (watched_.front().revents != 0 && !is_woken);
  if (may_have_lost_pipe && !pipe_->IsIntact()) GiveUpPollingLocked(lost_pipe_);
}

void MessageControlPlane::GiveUpPollingLocked(const absl::Status& failure) {
  cannot_poll_ = true;
  GuardLocked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    FailAloneLocked(failure);
    PublishLocked();
  });
}

void MessageControlPlane::LetOthersRunLocked() {
  mu_.Unlock();
  sched_yield();
  mu_.Lock();
}

void MessageControlPlane::Wait(absl::Time deadline) {
  MutexLock lock(&mu_);
  waiting_.is_on = true;
  ++waiting_.number;
  if (wakes()) {
    WaitAtDescriptorsLocked(deadline);
  } else {
    WaitAndLookLocked(deadline);
  }
  waiting_.is_on = false;
  waiting_.is_woken = false;
  if (relaying_.sleeps_long) relay_changed_.NotifyAll();
}

void MessageControlPlane::WaitAtDescriptorsLocked(absl::Time deadline) {
  bool pauses = std::exchange(waiting_.expects_polling, false);
  if (!pauses && SpinLocked(deadline)) return;
  const absl::Time start = SteadyNow();
  uint64_t looks_before = looks_ - 1;
  for (absl::Time now = start; !waiting_.is_woken && now < deadline; now = SteadyNow()) {
    // The polling thread may be in a long collective, in which it does not look for messages.
    if (pauses || (polling_.is_on && looks_ != looks_before)) {
      looks_before = looks_;
      waiting_.is_pausing = true;
      woken_changed_.WaitFor(&mu_, std::min(kPauseWhilePolled, deadline - now));
      waiting_.is_pausing = pauses = false;
    } else if (watch_.by != Watcher::kNobody) {
      woken_changed_.WaitFor(&mu_, deadline - now);
    } else {
      WatchLocked(Watcher::kWait, deadline - now);
    }
  }
  waiting_.spin.Learn(SteadyNow() - start);
}

bool MessageControlPlane::SpinLocked(absl::Time deadline) {
  const bool may_spin =
      options_.cores == PollLimit::Cores::kSuffice && !polling_.is_on && watch_.by == Watcher::kNobody;
  if (!may_spin || waiting_.spin.length() == absl::ZeroDuration()) return waiting_.is_woken;
  const absl::Duration end = MonotonicTime() + std::min(waiting_.spin.length(), deadline - SteadyNow());
  while (!waiting_.is_woken && MonotonicTime() < end) {
    if (!MoveLocked()) LetOthersRunLocked();
  }
  return waiting_.is_woken;
}

void MessageControlPlane::WaitAndLookLocked(absl::Time deadline) {
  for (;;) {
    MoveLocked();
    const absl::Duration quiet = MonotonicTime() - last_movement_;
    const absl::Time now = SteadyNow();
    if (waiting_.is_woken || now >= deadline) return;
    if (quiet < kLookOn) {
      LetOthersRunLocked();
    } else if (quiet < kAttentive) {
      const absl::Duration pause = std::clamp(quiet / kPauseShare, kShortestPause, kLongestPause);
      woken_changed_.WaitFor(&mu_, std::min(pause, deadline - now));
    } else {
      woken_changed_.WaitFor(&mu_, deadline - now);
    }
  }
}

void MessageControlPlane::Wake() {
  MutexLock lock(&mu_);
  if (polling_.is_on) {
    polling_.has_missed_wake = true;
  } else {
    WakeWaitLocked();
  }
}

bool MessageControlPlane::StartPolling() {
  if (!wakes()) return false;
  MutexLock lock(&mu_);
  polling_.is_on = true;
  polling_.gave_up = polling_.has_missed_wake = polling_.has_missed_news = false;
  polling_.limit.Reset();
  return true;
}

bool MessageControlPlane::KeepPolling() {
  MutexLock lock(&mu_);
  polling_.gave_up = !polling_.limit.MayLookAgain();
  if (polling_.gave_up) return false;
  polling_.has_missed_wake = false;
  // Even if each rank has its own core, the kernel may have put the rank that must answer on this thread's core.
  LetOthersRunLocked();
  return true;
}

void MessageControlPlane::StopPolling() {
  MutexLock lock(&mu_);
  polling_.is_on = false;
  if (polling_.has_missed_wake || polling_.has_missed_news) {
    WakeWaitLocked();
  } else if (polling_.gave_up && waiting_.is_pausing) {
    woken_changed_.NotifyAll();
  }
}

void MessageControlPlane::ExpectPolling() {
  MutexLock lock(&mu_);
  waiting_.expects_polling = true;
}

void MessageControlPlane::Run() {
  MutexLock lock(&mu_);
  while (!is_ending_) {
    const absl::Duration until_tick = is_silent_ ? absl::InfiniteDuration() : next_tick_ - MonotonicTime();
    const bool is_to_tell = !relaying_.has_told && node().started() && has_failed_ && options_.on_failure != nullptr;
    if (is_to_tell) {
      TellFailureLocked();
    } else if (until_tick <= absl::ZeroDuration()) {
      MoveLocked();
      ++relaying_.looks_seen;
    } else {
      RelayLocked(until_tick);
    }
  }
}

void MessageControlPlane::TellFailureLocked() {
  relaying_.has_told = true;
  mu_.Unlock();
  options_.on_failure(FailureAfterSilence());
  mu_.Lock();
}

void MessageControlPlane::RelayLocked(absl::Duration longest) {
  if (!wakes()) return RelayByLookingLocked(longest);
  const bool is_watched = waiting_.is_on || watch_.by != Watcher::kNobody;
  if (!is_watched && looks_ == relaying_.looks_seen) {
    WatchLocked(Watcher::kRelay, longest);
    ++relaying_.looks_seen;  // one of these looks was this thread's own
    return;
  }
  relaying_.sleeps_long = waiting_.is_on && waiting_.number == relaying_.waits_seen;
  relaying_.looks_seen = looks_;
  relaying_.waits_seen = waiting_.number;
  relay_changed_.WaitFor(&mu_, relaying_.sleeps_long ? longest : std::min(kRelayPause, longest));
  relaying_.sleeps_long = false;
}

void MessageControlPlane::RelayByLookingLocked(absl::Duration longest) {
  const bool others_look = looks_ != relaying_.looks_seen;
  if (!others_look && MoveLocked()) {
    relaying_.interval = kShortestPause;
  } else {
    relaying_.interval = others_look ? kLongestPause : std::min(2 * relaying_.interval, kLongestPause);
  }
  relaying_.looks_seen = looks_;
  relay_changed_.WaitFor(&mu_, is_silent_ ? longest : std::min(relaying_.interval, longest));
}

}  // namespace ronda
