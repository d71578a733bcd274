// SPDX-License-Identifier: Apache-2.0

// The fake plugin's functions for memory that ranks share, and for stream operations on words in memory.
//
// The rules are the same as in CUDA's driver (virtual memory management, stream memory operations). Sizes are multiples
// of the unit. Words are aligned, and in memory that the device can address. A wait blocks the queue of its stream.
// Registered host memory has a different address on the device. A device can access another device's memory only if the
// options allow it.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_SHARING_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_SHARING_H_

#include <cstddef>

#include "runtime/cuda/plugin.h"

namespace ronda::testing {

int SharingUnit(size_t* bytes);
int AllocateShared(size_t bytes, int* file);
int MapShared(const int* files, int count, size_t bytes, void** memory);
int UnmapShared(void* memory, int count, size_t bytes);
int RegisterHost(void* memory, size_t bytes, void** on_device);
int UnregisterHost(void* memory);
int RunWordOps(const ronda_cuda_word_op* ops, int count, void* stream);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_SHARING_H_
