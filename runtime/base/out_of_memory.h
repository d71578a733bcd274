// SPDX-License-Identifier: Apache-2.0

// Helps code that must go on even if no memory is left.
#ifndef RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_
#define RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_

#include <new>
#include <thread>

namespace ronda {

// Calls `function` again and again until it gets the little memory that it needs. Returns the result of `function`. The
// loop ends, because sooner or later other threads free some memory.
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
