// SPDX-License-Identifier: Apache-2.0

// The threads that look for messages: the one in Wait, one that polls, and the control plane's own.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/control/messages/message_plane.h"

namespace ronda {
namespace {

// Where messages do not wake threads: about the time of an answer. A rank that has just sent something looks this long
// without a pause.
constexpr absl::Duration kLookOn = absl::Microseconds(100);
constexpr int kPauseShare = 8;
constexpr absl::Duration kLongestPause = absl::Milliseconds(1);
// After this time Wait leaves looking to the thread that does nothing else.
constexpr absl::Duration kAttentive = absl::Milliseconds(20);

// Where they do: how long Wait keeps away from a thread that polls, and how soon the control plane's thread looks again
// whether another thread still looks.
constexpr absl::Duration kNap = absl::Milliseconds(1);
constexpr absl::Duration kRelayPause = absl::Milliseconds(5);

}  // namespace

void MessageControlPlane::WakeWaitLocked() {
  woken_ = true;
  if (watcher_ == Watcher::kWait) {
    WakeWatcherLocked();
  } else {
    woken_changed_.NotifyAll();
  }
}

void MessageControlPlane::WakeRelayLocked() {
  if (watcher_ == Watcher::kRelay) {
    WakeWatcherLocked();
  } else {
    relay_changed_.NotifyAll();
  }
}

void MessageControlPlane::WakeWatcherLocked() {
  if (!std::exchange(is_watcher_woken_, true)) pipe_->Wake();
}

void MessageControlPlane::WatchLocked(Watcher watcher, absl::Duration longest) {
  watched_.clear();
  watched_.push_back({.fd = pipe_->reader(), .events = POLLIN, .revents = 0});
  links_->ListDescriptors(&watched_);
  watches_output_ = links_->IsSending();
  watcher_ = watcher;
  const timespec limit = absl::ToTimespec(std::clamp(longest, absl::ZeroDuration(), absl::Hours(1)));
  mu_.Unlock();
  ppoll(watched_.data(), watched_.size(), &limit, nullptr);
  mu_.Lock();
  watcher_ = Watcher::kNobody;
  if (std::exchange(is_watcher_woken_, false)) pipe_->Clear();
  MoveLocked();
  // Threads that found the descriptors taken may sleep there now.
  if (watcher != Watcher::kWait) woken_changed_.NotifyAll();
  state_changed_.NotifyAll();
}

void MessageControlPlane::LetOthersRunLocked() {
  mu_.Unlock();
  sched_yield();
  mu_.Lock();
}

void MessageControlPlane::Wait(absl::Time deadline) {
  MutexLock lock(&mu_);
  is_in_wait_ = true;
  ++waits_;
  if (wakes()) {
    WaitAtDescriptorsLocked(deadline);
  } else {
    WaitAndLookLocked(deadline);
  }
  is_in_wait_ = false;
  woken_ = false;
  if (relay_sleeps_long_) relay_changed_.NotifyAll();
}

void MessageControlPlane::WaitAtDescriptorsLocked(absl::Time deadline) {
  bool naps = std::exchange(expects_polling_, false);
  if (!naps && SpinLocked(deadline)) return;
  const absl::Time start = SteadyNow();
  for (absl::Time now = start; !woken_ && now < deadline; now = SteadyNow()) {
    if (naps || polling_) {
      is_napping_ = true;
      woken_changed_.WaitFor(&mu_, std::min(kNap, deadline - now));
      is_napping_ = naps = false;
    } else if (watcher_ != Watcher::kNobody) {
      woken_changed_.WaitFor(&mu_, deadline - now);
    } else {
      WatchLocked(Watcher::kWait, deadline - now);
    }
  }
  spin_.Learn(SteadyNow() - start);
}

bool MessageControlPlane::SpinLocked(absl::Time deadline) {
  const bool may_spin = options_.cores == PollLimit::Cores::kSuffice && !polling_ && watcher_ == Watcher::kNobody;
  if (!may_spin || spin_.length() == absl::ZeroDuration()) return woken_;
  const absl::Duration end = MonotonicTime() + std::min(spin_.length(), deadline - SteadyNow());
  while (!woken_ && MonotonicTime() < end) {
    if (!MoveLocked()) LetOthersRunLocked();
  }
  return woken_;
}

void MessageControlPlane::WaitAndLookLocked(absl::Time deadline) {
  for (;;) {
    MoveLocked();
    const absl::Duration quiet = MonotonicTime() - last_movement_;
    const absl::Time now = SteadyNow();
    if (woken_ || now >= deadline) return;
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
  if (polling_) {
    is_wake_missed_ = true;
  } else {
    WakeWaitLocked();
  }
}

bool MessageControlPlane::StartPolling() {
  if (!wakes()) return false;
  MutexLock lock(&mu_);
  polling_ = true;
  gave_up_ = is_wake_missed_ = is_news_missed_ = false;
  poll_limit_.Reset();
  return true;
}

bool MessageControlPlane::KeepPolling() {
  MutexLock lock(&mu_);
  gave_up_ = !poll_limit_.MayLookAgain();
  if (gave_up_) return false;
  is_wake_missed_ = false;
  // Even if each rank has a core, the rank that is to answer may have been scheduled on this one.
  LetOthersRunLocked();
  return true;
}

void MessageControlPlane::StopPolling() {
  MutexLock lock(&mu_);
  polling_ = false;
  if (is_wake_missed_ || is_news_missed_) {
    WakeWaitLocked();
  } else if (gave_up_ && is_napping_) {
    woken_changed_.NotifyAll();
  }
}

void MessageControlPlane::ExpectPolling() {
  MutexLock lock(&mu_);
  expects_polling_ = true;
}

void MessageControlPlane::Run() {
  MutexLock lock(&mu_);
  absl::Duration next_tick = MonotonicTime();
  while (!is_ending_) {
    if (const absl::Duration now = MonotonicTime(); now >= next_tick && !is_silent_) {
      GuardLocked([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        node().Tick(now);
        PublishLocked();
      });
      next_tick = now + options_.heartbeat;
    }
    const bool is_to_tell = !has_told_ && node().started() && has_failed_ && options_.on_failure != nullptr;
    if (is_to_tell) {
      TellFailureLocked();
    } else {
      RelayLocked(is_silent_ ? absl::InfiniteDuration() : next_tick - MonotonicTime());
    }
  }
}

void MessageControlPlane::TellFailureLocked() {
  has_told_ = true;
  mu_.Unlock();
  options_.on_failure(FailureAfterSilence());
  mu_.Lock();
}

void MessageControlPlane::RelayLocked(absl::Duration longest) {
  if (!wakes()) return RelayByLookingLocked(longest);
  const bool is_watched = is_in_wait_ || watcher_ != Watcher::kNobody;
  if (!is_watched && looks_ == looks_seen_) {
    WatchLocked(Watcher::kRelay, longest);
    ++looks_seen_;  // of these looks, one was this thread's
    return;
  }
  relay_sleeps_long_ = is_in_wait_ && waits_ == waits_seen_;
  looks_seen_ = looks_;
  waits_seen_ = waits_;
  relay_changed_.WaitFor(&mu_, relay_sleeps_long_ ? longest : std::min(kRelayPause, longest));
  relay_sleeps_long_ = false;
}

void MessageControlPlane::RelayByLookingLocked(absl::Duration longest) {
  const bool others_look = looks_ != looks_seen_;
  if (!others_look && MoveLocked()) {
    relay_interval_ = kShortestPause;
  } else {
    relay_interval_ = others_look ? kLongestPause : std::min(2 * relay_interval_, kLongestPause);
  }
  looks_seen_ = looks_;
  relay_changed_.WaitFor(&mu_, is_silent_ ? longest : std::min(relay_interval_, longest));
}

}  // namespace ronda
