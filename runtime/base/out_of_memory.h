// What code does that must go on where there is no memory left.
#ifndef RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_
#define RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_

#include <new>
#include <thread>

namespace ronda {

// Calls `function` until it finds the little memory that it takes, and returns its result. Other threads give some
// memory back, sooner or later.
template <typename Function>
auto UntilMemoryIsFound(const Function& function) {
  for (;;) {
    try {
      return function();
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_
