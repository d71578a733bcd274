// The devices of tests/testing/fake_cuda as the stand-ins for CUDA's libraries use them: those that Ronda has loaded,
// or will load, in the same process.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_

#include <cstddef>
#include <functional>

#include "runtime/cuda/plugin.h"

// A function of CUDA's, which PyTorch's libraries look for by its name.
#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace ronda::testing {

// libfake_cuda.so, from RONDA_CUDA_PLUGIN. Ends the process, with a line that says why, where it cannot be loaded.
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
