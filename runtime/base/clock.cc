#include "runtime/base/clock.h"

#include <chrono>

namespace ronda {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace

absl::Duration MonotonicTime() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

Clock* Clock::Real() {
  static RealClock* const clock = new RealClock;
  return clock;
}

}  // namespace ronda
