#include "runtime/launch/shutdown_schedule.h"

#include <csignal>

namespace ronda {

void ShutdownSchedule::OnFailure(absl::Time now) {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kSettling;
  deadline_ = now + options_.settle;
}

std::optional<int> ShutdownSchedule::OnUserSignal(int signo, absl::Time now) {
  if (phase_ == Phase::kKilled) return std::nullopt;
  if (phase_ == Phase::kTerminating) {
    if (signo != SIGINT) return std::nullopt;
    return OnAbandon();
  }
  OnGiveUp(now);
  return signo;
}

int ShutdownSchedule::OnGiveUp(absl::Time now) {
  phase_ = Phase::kTerminating;
  deadline_ = now + options_.grace;
  return SIGTERM;
}

int ShutdownSchedule::OnAbandon() {
  phase_ = Phase::kKilled;
  deadline_ = absl::InfiniteFuture();
  return SIGKILL;
}

std::optional<int> ShutdownSchedule::Due(absl::Time now) {
  if (now < deadline_) return std::nullopt;
  return phase_ == Phase::kTerminating ? OnAbandon() : OnGiveUp(now);
}

}  // namespace ronda
