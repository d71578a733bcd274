#ifndef RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_
#define RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_

#ifdef __x86_64__
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace ronda {

// Gives the calling thread the default floating-point environment until this object is destroyed: rounding to nearest,
// denormals as they are, no traps. Trainers change theirs (flush to zero, traps), and a trainer thread that reduces
// must produce the same bits as all other ranks.
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
  static constexpr unsigned kFlags = 0x3f;      // exceptions since they were last cleared: no part of the environment
  static constexpr unsigned kDefault = 0x1f80;  // of a new thread

  static bool IsDefault(unsigned state) { return (state & ~kFlags) == kDefault; }

  const unsigned saved_;  // the SSE unit's; switching only that takes nanoseconds
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
