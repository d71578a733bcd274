#include "runtime/base/float_environment.h"

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace ronda {

#ifdef __x86_64__

namespace {

constexpr unsigned kFlags = 0x3f;      // what has happened so far, which is not of the environment
constexpr unsigned kDefault = 0x1f80;  // as threads have it at first

bool IsDefault(unsigned state) { return (state & ~kFlags) == kDefault; }

}  // namespace

ScopedFloatEnvironment::ScopedFloatEnvironment() : saved_(_mm_getcsr()) {
  if (!IsDefault(saved_)) _mm_setcsr(kDefault);
}

ScopedFloatEnvironment::~ScopedFloatEnvironment() {
  if (!IsDefault(saved_)) _mm_setcsr(saved_);
}

#else

ScopedFloatEnvironment::ScopedFloatEnvironment() {
  std::fegetenv(&saved_);
  std::fesetenv(FE_DFL_ENV);
}

ScopedFloatEnvironment::~ScopedFloatEnvironment() { std::fesetenv(&saved_); }

#endif

}  // namespace ronda
