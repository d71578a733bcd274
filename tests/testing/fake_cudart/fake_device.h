// SPDX-License-Identifier: Apache-2.0

// The devices of tests/testing/fake_cuda, for the stand-ins for CUDA's libraries. They are the devices that Ronda has
// loaded, or will load, in the same process.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_

#include <cstddef>
#include <functional>

#include "runtime/cuda/plugin.h"

// A function of CUDA's, which PyTorch's libraries find by its name.
#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace ronda::testing {

// libfake_cuda.so, from RONDA_CUDA_PLUGIN. If it cannot be loaded, prints the reason and ends the process.
struct FakeDevices {
  const ronda_cuda_plugin* table;
  int (*enqueue)(void* stream, void (*function)(void*), void* context);
  void* (*view)(const void* address);
  int (*is_idle)(void* stream, int* idle);
  void (*wait_for_device)();
  int (*has_context)(int device);

  static const FakeDevices& Get();

  // Returns 0, or an error as the table's functions do.
  int Enqueue(void* stream, std::function<void()> work) const;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
