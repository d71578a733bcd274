#ifndef RONDA_RUNTIME_BASE_CLOCK_H_
#define RONDA_RUNTIME_BASE_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ronda {

// Where deadlines and ages read the time from. Tests inject FakeClock (tests/testing/fake_clock.h).
//
// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;

  // The machine's clock; never destroyed.
  static Clock* Real();
};

// The time since some moment in the past, for measuring waits: unlike absl::Now() it does not jump when the machine's
// clock is set.
absl::Duration MonotonicTime();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_CLOCK_H_
