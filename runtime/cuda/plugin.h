// SPDX-License-Identifier: Apache-2.0

// The interface of libronda_cuda.so, which hides CUDA behind a table of functions. Only this library links CUDA, so one
// build of Ronda runs on machines with and without GPUs. The CUDA runtime and the kernels (kernels/cuda) are linked
// statically into it. Tests implement this interface with a library whose device is the CPU (tests/testing/fake_cuda).
//
// Functions that return int return 0 or an error code for error_text. Only synchronize_event and the functions whose
// comments say so may block. Any thread may call the functions. They act on the device that use_device has made current
// in the calling thread. Streams and events have CUDA's types (cudaStream_t, cudaEvent_t), so a caller can also pass a
// stream of the trainer.
#ifndef RONDA_RUNTIME_CUDA_PLUGIN_H_
#define RONDA_RUNTIME_CUDA_PLUGIN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/calls.h"

extern "C" {

// Increment this version with every change to the function table, or to a struct in the functions' arguments.
#define RONDA_CUDA_PLUGIN_VERSION 6

struct ronda_cuda_device {
  char name[256];    // "NVIDIA H200"
  char pci_bus[16];  // "0000:1b:00.0"
  char uuid[40];     // "5c8a9b6e-..."; for a part of a GPU (MIG), the part's own, as in nvidia-smi -L; empty: unknown
  int capability_major;
  int capability_minor;
  int multiprocessors;
  size_t memory_bytes;
};

enum ronda_cuda_memory {
  RONDA_CUDA_DEVICE_MEMORY = 0,
  RONDA_CUDA_PINNED_HOST_MEMORY = 1  // the device can address it too, by the same pointer
};

// What a stream does with a 32-bit word when it reaches the operation.
enum ronda_cuda_word_action {
  // Makes the results of the stream's earlier work visible to all devices and host threads, then writes `value`.
  RONDA_CUDA_WRITE_WORD = 0,
  // Waits until the word minus `value`, as a signed number, is at least 0, so that the comparison survives overflow.
  RONDA_CUDA_AWAIT_WORD_AT_LEAST = 1,
  RONDA_CUDA_AWAIT_WORD_EQUAL = 2  // waits until the word equals `value`
};

struct ronda_cuda_word_op {
  ronda_cuda_word_action action;
  void* word;  // aligned to 4 bytes, in memory that the device can address; for registered memory, its device address
  uint32_t value;
};

// The maximum number of operations per call of run_word_ops (the limit of cuStreamBatchMemOp).
#define RONDA_CUDA_MOST_WORD_OPS 256

struct ronda_cuda_plugin {
  uint32_t version;  // RONDA_CUDA_PLUGIN_VERSION

  // Returns for example "CUDA runtime 13.0, driver 12.4". May be called without a driver.
  const char* (*library)();
  // Writes at most `size` bytes to `text`, including a terminating zero.
  void (*error_text)(int error, char* text, size_t size);

  // Sets *count to the number of devices. Without a suitable driver, sets it to 0 and returns an error.
  int (*device_count)(int* count);
  int (*describe)(int device, ronda_cuda_device* description);
  int (*use_device)(int device);       // in this thread
  int (*current_device)(int* device);  // of this thread
  // Like use_device, but does nothing if this process has not used the device yet. (For a thread that has not chosen a
  // device, device 0 is current, and calling use_device for it would occupy memory on device 0.)
  int (*restore_device)(int device);
  // Loads all kernels onto this thread's device. May wait for the device. Must be called before the device has work
  // that waits for other ranks. Otherwise CUDA would load each kernel at its first launch, and might wait for the
  // device before that. This could deadlock: the device may be running an NCCL kernel that waits for another rank,
  // which in turn waits for the launch.
  int (*prepare_device)();
  // Sets *device to the device whose memory contains `pointer`, or to -1 for host memory (pinned or not).
  int (*device_of)(const void* pointer, int* device);

  // Allocate and free memory. Both may wait for the device.
  int (*allocate)(ronda_cuda_memory kind, size_t bytes, void** memory);
  int (*release)(ronda_cuda_memory kind, void* memory);

  // The following functions are for memory that several ranks of a host share, in one process or several.
  //
  // Sets *bytes to the granularity of shared memory sizes. Returns an error if the device cannot share memory, or if
  // the driver lacks cuStreamBatchMemOp_v2.
  int (*sharing_unit)(size_t* bytes);
  // Allocates `bytes` bytes, a multiple of the granularity, on this thread's device, and sets *file to a descriptor for
  // them. The caller must close the descriptor, and may send it to other processes. The memory exists as long as any
  // process has a descriptor for it or has mapped it.
  int (*allocate_shared)(size_t bytes, int* file);
  // Maps the memory of `count` descriptors, of `bytes` bytes each, for this thread's device at consecutive addresses
  // from *memory on. The memory may be on other devices that this device can access. unmap_shared takes the same sizes,
  // and may wait for the device.
  int (*map_shared)(const int* files, int count, size_t bytes, void** memory);
  int (*unmap_shared)(void* memory, int count, size_t bytes);
  // Lets all devices address whole pages of host memory, which may be shared with other processes. Sets *on_device to
  // the address of the memory on the devices. Both functions may wait for the device.
  int (*register_host)(void* memory, size_t bytes, void** on_device);
  int (*unregister_host)(void* memory);

  // Creates a stream with the device's highest priority, whose work does not wait for the default stream.
  int (*create_stream)(void** stream);
  int (*destroy_stream)(void* stream);
  // Sets *capturing to 1 if the stream is being captured into a graph, otherwise to 0. For the default stream, also
  // sets it to 1 if work on this stream would break the capture of another stream.
  int (*is_capturing)(void* stream, int* capturing);
  // Sets *id to a number that no other stream of the process ever has. (Handles do not identify streams, because CUDA
  // reuses them, and the default streams of all threads have the same handle.) Fails while the stream is being
  // captured.
  int (*stream_id)(void* stream, uint64_t* id);

  int (*create_event)(int timing, void** event);  // timing: nonzero if elapsed_ms will be used
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*wait_event)(void* stream, void* event);  // the stream waits, not the caller
  int (*query_event)(void* event, int* done);
  int (*synchronize_event)(void* event);  // blocks
  int (*elapsed_ms)(void* begin, void* end, float* ms);

  // All functions below enqueue their work on `stream`, which executes it in order.

  // Copies between any kinds of memory. Host memory must be pinned.
  int (*copy)(void* dst, const void* src, size_t bytes, void* stream);
  int (*fill_zero)(void* dst, size_t bytes, void* stream);
  // Enqueues `count` operations, which the stream executes in order (cuStreamBatchMemOp).
  int (*run_word_ops)(const ronda_cuda_word_op* ops, int count, void* stream);
  int (*pack)(const ronda::kernels::cuda::PackCall* call, void* stream);
  int (*unpack)(const ronda::kernels::cuda::UnpackCall* call, void* stream);
  int (*reduce)(const ronda::kernels::cuda::ReduceCall* call, void* stream);
  int (*find_non_finite)(const ronda::kernels::cuda::NonFiniteCall* call, void* stream);
  int (*add_scaled)(const ronda::kernels::cuda::AddScaledCall* call, void* stream);
  int (*adasum_dots)(const ronda::kernels::cuda::DotsCall* call, void* stream);
  int (*adasum_combine)(const ronda::kernels::cuda::CombineCall* call, void* stream);

  // Begin and end a named span of the calling thread (NVTX, in the domain "Ronda"). Spans may be nested. Profilers show
  // the span, and the work that the thread enqueues on the GPU within it. Without a profiler, these functions do
  // nothing. They need no driver.
  void (*begin_range)(const char* name);
  void (*end_range)();
};

// The only symbol that the plugin exports.
#define RONDA_CUDA_PLUGIN_SYMBOL "ronda_cuda_plugin_table"
const ronda_cuda_plugin* ronda_cuda_plugin_table();

}  // extern "C"

#endif  // RONDA_RUNTIME_CUDA_PLUGIN_H_
