// SPDX-License-Identifier: Apache-2.0

// Gives the stand-ins for CUDA's libraries access to the fake devices (tests/testing/fake_cuda), which Ronda also uses.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
#define RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_

#include <cstddef>
#include <functional>

#include "runtime/cuda/plugin.h"

// Marks a CUDA function, which PyTorch's libraries find by name.
#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace ronda::testing {

// libfake_cuda.so, from FAKE_CUDA_LIBRARY. If it cannot be loaded, prints the reason and ends the process.
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

  // Enqueues work that may be captured, and that a graph may therefore run several times. Returns 0 or an error, as the
  // table's functions do.
  int Enqueue(void* stream, std::function<void()> work) const;
};

// The calling thread's last error.
int& LastError();

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDART_FAKE_DEVICE_H_
