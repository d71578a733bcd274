// SPDX-License-Identifier: Apache-2.0

// A helper for code that must not fail when memory runs out.
#ifndef RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_
#define RONDA_RUNTIME_BASE_OUT_OF_MEMORY_H_

#include <new>
#include <thread>

namespace ronda {

// Retries `function`, which needs little memory, until it does not throw std::bad_alloc, and returns its result. The
// loop relies on other threads to free some memory.
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
