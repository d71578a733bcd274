// What CUDA knows of the host that the plugin does not: who waits, and which of its memory is pinned.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_WAITING_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_WAITING_H_

#include <cstddef>

namespace ronda::testing {

// Returns when the stream has done what it has been given so far: 0, or an error as the table's functions do.
int WaitForStream(void* stream);

// The pinned memory that this CUDA runtime has given out. Thread-safe.
class HostMemory {
 public:
  static void Add(const void* memory, size_t bytes);
  static void Remove(const void* memory);
  static bool IsPinned(const void* address);
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDART_WAITING_H_
