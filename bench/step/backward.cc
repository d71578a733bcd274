#include "bench/step/backward.h"

#include <time.h>

namespace ronda::bench {
namespace {

clockid_t ClockOf(ComputeKind kind) { return kind == ComputeKind::kBurn ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC; }

absl::Duration Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace

std::vector<ReadyGradient> BackwardPass(const ModelShapes& model, absl::Duration compute) {
  double total = 0;
  for (const Parameter& parameter : model.parameters) total += parameter.work;
  const double even = total == 0 ? 1 : 0;
  if (total == 0) total = static_cast<double>(model.parameters.size());
  std::vector<ReadyGradient> pass;
  double done = 0;
  for (size_t i = model.parameters.size(); i-- > 0;) {
    done += model.parameters[i].work + even;
    pass.push_back({.parameter = i, .after = compute * (done / total)});
  }
  return pass;
}

Computation::Computation(ComputeKind kind) : kind_(kind), start_(Now(ClockOf(kind))) {}

void Computation::Until(absl::Duration duration) const {
  if (duration == absl::ZeroDuration()) return;
  const absl::Duration end = start_ + duration;
  if (kind_ == ComputeKind::kSleep) {
    const timespec until = absl::ToTimespec(end);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
    }
    return;
  }
  while (Now(ClockOf(kind_)) < end) {
  }
}

}  // namespace ronda::bench
