// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_SHUTDOWN_SCHEDULE_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_SHUTDOWN_SCHEDULE_H_

#include <csignal>
#include <optional>

#include "absl/time/time.h"

namespace ronda {

// Decides which signals the ranks get, and when, once the job must end.
//
// After a failure, the other ranks first get some time: they notice by themselves that a peer is dead, and the user
// needs their messages about it. The remaining ranks then get SIGTERM and, after a grace period, SIGKILL. A signal from
// the user is passed on to the ranks at once, and also starts the grace period. If the user sends SIGINT while the job
// is ending, the ranks are killed at once.
//
// A pure state machine: it neither sends signals nor reads the clock. Thread-compatible.
class ShutdownSchedule {
 public:
  enum class Phase { kRunning, kSettling, kTerminating, kKilled };

  struct Options {
    absl::Duration settle = absl::Seconds(1);  // from the first failure to SIGTERM
    absl::Duration grace = absl::Seconds(5);   // from SIGTERM, or the user's signal, to SIGKILL
  };

  explicit ShutdownSchedule(Options options) : options_(options) {}

  // A rank has failed.
  void OnFailure(absl::Time now);

  // The user has sent `signo` to the launcher. Returns the signal to send to the ranks now.
  std::optional<int> OnUserSignal(int signo, absl::Time now);

  // The job cannot continue, but the helpers that started the ranks can still end them. Returns the signal to send now.
  // REQUIRES: phase() is kRunning.
  int OnGiveUp(absl::Time now);

  // The job cannot continue, and there is no point in waiting. Returns the signal to send to the ranks now.
  int OnAbandon();

  // Returns the signal that must be sent now, if any.
  std::optional<int> Due(absl::Time now);

  // Returns when the caller must call Due again, or the infinite future if no signal will become due.
  absl::Time deadline() const { return deadline_; }

  Phase phase() const { return phase_; }

 private:
  const Options options_;
  Phase phase_ = Phase::kRunning;
  absl::Time deadline_ = absl::InfiniteFuture();
};

inline void ShutdownSchedule::OnFailure(absl::Time now) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kSettling;
  deadline_ = now + options_.settle;
}

inline std::optional<int> ShutdownSchedule::OnUserSignal(int signo, absl::Time now) {
  if (phase_ == Phase::kKilled) return std::nullopt;
  if (phase_ == Phase::kTerminating) {
    if (signo != SIGINT) return std::nullopt;
    return OnAbandon();
  }
  OnGiveUp(now);
  return signo;
}

inline int ShutdownSchedule::OnGiveUp(absl::Time now) {
  phase_ = Phase::kTerminating;
  deadline_ = now + options_.grace;
  return SIGTERM;
}

inline int ShutdownSchedule::OnAbandon() {
  phase_ = Phase::kKilled;
  deadline_ = absl::InfiniteFuture();
  return SIGKILL;
}

inline std::optional<int> ShutdownSchedule::Due(absl::Time now) {
  if (now < deadline_) return std::nullopt;
  return phase_ == Phase::kTerminating ? OnAbandon() : OnGiveUp(now);
}

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_SHUTDOWN_SCHEDULE_H_
