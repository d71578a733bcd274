#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_PREFETCH_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_PREFETCH_H_

namespace ronda {

// Asks for the cache line at `line`, to write it. (The compiler's own prefetch asks for a copy only, on processors that
// it does not know.)
inline void PrefetchToWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_PREFETCH_H_
