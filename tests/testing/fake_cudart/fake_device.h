// SPDX-License-Identifier: Apache-2.0

// Gives the stand-ins for CUDA's libraries the devices of tests/testing/fake_cuda. Ronda also uses these devices.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_

#include <cstddef>
#include <functional>

#include "runtime/cuda/plugin.h"

// Marks a function of CUDA, which PyTorch's libraries find by its name.
#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace ronda::testing {

// libfake_cuda.so, from FAKE_CUDA_LIBRARY. If the library of the devices cannot be loaded, prints the reason and ends
// the process.
struct FakeDevices {
  const ronda_cuda_plugin* table;
  int (*enqueue_owned)(void* stream, void (*function)(void*), void* context, void (*release)(void*));
  void* (*view)(const void* address);
  int (*is_pinned)(const void* address);
  int (*is_idle)(void* stream, int* idle);
  void (*wait_for_device)();
  int (*has_context)(int device);
  int (*begin_unsafe_call)();
  int (*begin_wait_for_stream)(void* stream);
  int (*create_blocking_stream)(void** stream);
  int (*begin_capture)(void* stream, int mode);
  int (*end_capture)(void* stream, void** graph);
  int (*capture_state)(void* stream, int* state, uint64_t* id);
  int (*exchange_capture_mode)(int* mode);
  int (*copy_graph)(void* graph, void** copy);
  int (*launch_graph)(void* graph, void* stream);
  int (*destroy_graph)(void* graph);
  void* (*reserve)(size_t bytes);
  int (*map)(void* address, size_t bytes, int file);
  int (*give_access)(void* range, size_t bytes, int device);
  int (*free_range)(void* range);

  static const FakeDevices& Get();

  // Gives the stream work that may be captured. A graph may do such work several times. Returns 0, or an error as the
  // table's functions do.
  int Enqueue(void* stream, std::function<void()> work) const;
};

// Returns the number of the calling thread's last error.
int& LastError();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
