// SPDX-License-Identifier: Apache-2.0

// CUDA's knowledge about the host that the plugin does not have: waiting for streams, and pinned memory.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_WAITING_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_WAITING_H_

#include <cstddef>

namespace ronda::testing {

// Returns when the stream has completed its work so far: 0, or an error as the table's functions do.
int WaitForStream(void* stream);

// The pinned memory that this CUDA runtime has allocated. Thread-safe.
class HostMemory {
 public:
  static void Add(const void* memory, size_t bytes);
  static void Remove(const void* memory);
  static bool IsPinned(const void* address);
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDART_WAITING_H_
