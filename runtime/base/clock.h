// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_CLOCK_H_
#define RONDA_RUNTIME_BASE_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ronda {

// Returns the time since a fixed moment in the past, which is the same for all processes of a machine. Setting the
// system clock does not affect it.
inline absl::Duration MonotonicTime() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

// Returns MonotonicTime as a point in time, for deadlines and ages. The calendar date of the result is meaningless.
inline absl::Time SteadyNow() { return absl::FromUnixSeconds(1'000'000'000) + MonotonicTime(); }

// Returns the date and time, for display. The result may jump, so code must not use it for waits (tools/check tests
// this).
inline absl::Time CalendarNow() { return absl::Now(); }

// A source of time. Tests use FakeClock instead (tests/testing/fakes.h).
//
// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;

  // The following clocks are never destroyed.
  static Clock* Real();      // SteadyNow()
  static Clock* Calendar();  // CalendarNow()
};

namespace clock_internal {

template <absl::Time now()>
class ClockOf : public Clock {
 public:
  static Clock* Get() {
    static ClockOf* const clock = new ClockOf;
    return clock;
  }
  absl::Time Now() const override { return now(); }
};

}  // namespace clock_internal

inline Clock* Clock::Real() { return clock_internal::ClockOf<SteadyNow>::Get(); }
inline Clock* Clock::Calendar() { return clock_internal::ClockOf<CalendarNow>::Get(); }

// Returns a counter that ticks at a constant rate. If the processor has such a counter, reading it takes a few cycles.
// To measure the length of a tick, read the counter and another clock together, twice, some time apart.
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
