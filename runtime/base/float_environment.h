#ifndef RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_
#define RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_

#include <cfenv>

namespace ronda {

// Gives the calling thread the default floating-point environment until this object goes: rounding to nearest,
// denormals as they are, no traps. Trainers change theirs (flush to zero, traps), and a thread of theirs that reduces
// must leave the same bits as those of all other ranks.
class ScopedFloatEnvironment {
 public:
  ScopedFloatEnvironment();
  ~ScopedFloatEnvironment();
  ScopedFloatEnvironment(const ScopedFloatEnvironment&) = delete;
  ScopedFloatEnvironment& operator=(const ScopedFloatEnvironment&) = delete;

 private:
#ifdef __x86_64__
  const unsigned saved_;  // the SSE unit's; switching only that takes nanoseconds
#else
  std::fenv_t saved_;
#endif
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_FLOAT_ENVIRONMENT_H_
