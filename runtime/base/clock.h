#ifndef RONDA_RUNTIME_BASE_CLOCK_H_
#define RONDA_RUNTIME_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ronda {

// The source of time for deadlines and ages. Tests inject FakeClock (tests/testing/fakes.h).
//
// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;

  // The machine's clock; never destroyed.
  static Clock* Real();
};

inline Clock* Clock::Real() {
  class RealClock : public Clock {
   public:
    absl::Time Now() const override { return absl::Now(); }
  };
  static RealClock* const clock = new RealClock;
  return clock;
}

// The time since some moment in the past, for measuring waits: unlike absl::Now() it does not jump when the machine's
// clock is set.
inline absl::Duration MonotonicTime() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// Ticks of a constant rate since some moment in the past, for a few cycles: the processor's own counter where it has
// one. What one of them is follows from two looks at both clocks.
inline uint64_t CheapTicks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(MonotonicTime()));
#endif
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_CLOCK_H_
