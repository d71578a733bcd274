// SPDX-License-Identifier: Apache-2.0

// The interface of libronda_cuda.so, which hides CUDA behind a table of functions. Only this library is linked with
// CUDA, so one build of Ronda runs on machines with and without GPUs. It contains the CUDA runtime and the kernels
// (kernels/cuda), statically. Tests use another library with this interface, whose device is the CPU
// (tests/testing/fake_cuda).
//
// Functions that return int return 0, or an error code for error_text. Only synchronize_event blocks, and the functions
// whose comments say so. Calls may come from any thread. They act on the device that use_device made current in that
// thread. Streams and events are CUDA's (cudaStream_t, cudaEvent_t), so a trainer's stream can be passed.
#ifndef RONDA_RUNTIME_CUDA_PLUGIN_H_
#define RONDA_RUNTIME_CUDA_PLUGIN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/calls.h"

extern "C" {

// The version is raised with every change of the table or of the structs in its arguments.
#define RONDA_CUDA_PLUGIN_VERSION 5

struct ronda_cuda_device {
  char name[256];    // "NVIDIA H200"
  char pci_bus[16];  // "0000:1b:00.0"
  char uuid[40];     // "5c8a9b6e-..."; for a part of a GPU (MIG) the part's UUID, as in nvidia-smi -L; empty: not known
  int capability_major;
  int capability_minor;
  int multiprocessors;
  size_t memory_bytes;
};

enum ronda_cuda_memory {
  RONDA_CUDA_DEVICE_MEMORY = 0,
  RONDA_CUDA_PINNED_HOST_MEMORY = 1  // the device can also address it, by the same pointer
};

struct ronda_cuda_plugin {
  uint32_t version;  // RONDA_CUDA_PLUGIN_VERSION

  // "CUDA runtime 13.0, driver 12.4"; may be called without a driver.
  const char* (*library)();
  // Writes at most `size` bytes to `text`, including a zero at the end.
  void (*error_text)(int error, char* text, size_t size);

  // Returns an error, and sets *count to 0, if there is no suitable driver.
  int (*device_count)(int* count);
  int (*describe)(int device, ronda_cuda_device* description);
  int (*use_device)(int device);       // in this thread
  int (*current_device)(int* device);  // of this thread
  // Like use_device, but does nothing if this process has not used the device yet. (If a thread has chosen no device,
  // device 0 is its current one. Really using device 0 would occupy memory there.)
  int (*restore_device)(int device);
  // Loads all kernels onto this thread's device; may block for the device. Must be called before the device has work
  // that waits for other ranks. Without this call CUDA would load each kernel at the kernel's first launch, and might
  // first wait for the device. The device may run a kernel of NCCL that waits for a rank, and that rank may wait for
  // this launch.
  int (*prepare_device)();
  // Sets *device to the device whose memory contains `pointer`. For the host's memory (pinned or not) it sets *device
  // to -1.
  int (*device_of)(const void* pointer, int* device);

  // May block for the device.
  int (*allocate)(ronda_cuda_memory kind, size_t bytes, void** memory);
  int (*release)(ronda_cuda_memory kind, void* memory);

  // Creates a stream with the highest priority that exists. Work on it does not wait for the default stream.
  int (*create_stream)(void** stream);
  int (*destroy_stream)(void* stream);
  // Sets *capturing to whether work that is put on the stream goes into a graph that is being captured. For the default
  // stream, sets it to whether such work would break the capture of a stream that waits for the default stream.
  int (*is_capturing)(void* stream, int* capturing);
  // Sets *id to a number that no other stream of the process ever has. A handle does not suffice, because CUDA may use
  // it again, and the default streams of all threads have the same handle. Fails while the stream is being captured.
  int (*stream_id)(void* stream, uint64_t* id);

  int (*create_event)(int timing, void** event);  // timing: not 0 if elapsed_ms will be used
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*wait_event)(void* stream, void* event);  // the stream waits, not the caller
  int (*query_event)(void* event, int* done);
  int (*synchronize_event)(void* event);  // blocks
  int (*elapsed_ms)(void* begin, void* end, float* ms);

  // The work of all functions below runs in order on `stream`.
  int (*copy)(void* dst, const void* src, size_t bytes, void* stream);  // between any memories, host memory pinned
  int (*fill_zero)(void* dst, size_t bytes, void* stream);
  int (*pack)(const ronda::kernels::cuda::PackCall* call, void* stream);
  int (*unpack)(const ronda::kernels::cuda::UnpackCall* call, void* stream);
  int (*reduce)(const ronda::kernels::cuda::ReduceCall* call, void* stream);
  int (*find_non_finite)(const ronda::kernels::cuda::NonFiniteCall* call, void* stream);
  int (*add_scaled)(const ronda::kernels::cuda::AddScaledCall* call, void* stream);
  int (*adasum_dots)(const ronda::kernels::cuda::DotsCall* call, void* stream);
  int (*adasum_combine)(const ronda::kernels::cuda::CombineCall* call, void* stream);

  // Named spans of the calling thread, which may be nested. Profilers show them, and the work that the thread gives to
  // the GPU meanwhile (NVTX, in the domain "Ronda"). Without a profiler they do nothing. They need no driver.
  void (*begin_range)(const char* name);
  void (*end_range)();
};

// The only symbol that the plugin exports.
#define RONDA_CUDA_PLUGIN_SYMBOL "ronda_cuda_plugin_table"
const ronda_cuda_plugin* ronda_cuda_plugin_table();

}  // extern "C"

#endif  // RONDA_RUNTIME_CUDA_PLUGIN_H_
