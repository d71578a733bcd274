// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_
#define RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_

#ifdef __x86_64__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace ronda {

// Until this object is destroyed, the calling thread has the default floating-point environment: rounding to nearest,
// denormals unchanged, no traps. Trainers change the environment of their threads (flush to zero, traps). If a
// trainer's thread carries out a reduction, the result must still have the same bits as on all other ranks.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

#ifdef __x86_64__
  ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
    if (!IsDefault(saved_)) _mm_setcsr(kDefault);
  }
  ~ScopedFloatEnvironment() {
    if (!IsDefault(saved_)) _mm_setcsr(saved_);
  }

 private:
  static constexpr unsigned kFlags = 0x3f;      // exceptions since the last clear: not part of the environment
  static constexpr unsigned kDefault = 0x1f80;  // the state of a new thread

  static bool IsDefault(unsigned state) { return (state & ~kFlags) == kDefault; }

  const unsigned saved_;  // state of the SSE unit; switching only this takes nanoseconds
#else
  ScopedFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~ScopedFloatEnvironment() { std::fesetenv(&saved_); }

 private:
  std::fenv_t saved_;
#endif
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_
