// SPDX-License-Identifier: Apache-2.0

// The interface of libronda_cuda.so, which hides CUDA behind a table of functions. Only this library is linked with
// CUDA, so one build of Ronda runs on machines with and without GPUs. The library contains the CUDA runtime and the
// kernels (kernels/cuda), because both are linked statically. Tests use another library with this interface, whose
// device is the CPU (tests/testing/fake_cuda).
//
// Functions that return int return 0, or an error code for error_text. Only synchronize_event and the functions whose
// comments say so may block. Any thread may call the functions. A function acts on the device that use_device has made
// current in the calling thread. Streams and events have CUDA's types (cudaStream_t, cudaEvent_t), so a caller can also
// pass a stream of the trainer.
#ifndef RONDA_RUNTIME_CUDA_PLUGIN_H_
#define RONDA_RUNTIME_CUDA_PLUGIN_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/calls.h"

extern "C" {

// Every change of the function table, or of a struct in the functions' arguments, must raise this version.
#define RONDA_CUDA_PLUGIN_VERSION 6

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

// What a stream does with a word of 32 bits when the operation's turn comes.
enum ronda_cuda_word_action {
  // Makes all results of the stream's earlier work visible to every device and every host thread, then writes `value`.
  RONDA_CUDA_WRITE_WORD = 0,
  // Waits until the word minus `value`, as a signed number, is at least 0. So the comparison survives an overflow.
  RONDA_CUDA_AWAIT_WORD_AT_LEAST = 1,
  RONDA_CUDA_AWAIT_WORD_EQUAL = 2  // waits until the word equals `value`
};

struct ronda_cuda_word_op {
  ronda_cuda_word_action action;
  void* word;  // aligned to 4 bytes, in memory that the device can address; for registered memory, its device address
  uint32_t value;
};

// The most operations in one call of run_word_ops (the limit of cuStreamBatchMemOp).
#define RONDA_CUDA_MOST_WORD_OPS 256

struct ronda_cuda_plugin {
  uint32_t version;  // RONDA_CUDA_PLUGIN_VERSION

  // Returns for example "CUDA runtime 13.0, driver 12.4". May be called without a driver.
  const char* (*library)();
  // Writes at most `size` bytes to `text`, including a zero at the end.
  void (*error_text)(int error, char* text, size_t size);

  // Sets *count to the number of devices. If there is no suitable driver, sets it to 0 and returns an error.
  int (*device_count)(int* count);
  int (*describe)(int device, ronda_cuda_device* description);
  int (*use_device)(int device);       // in this thread
  int (*current_device)(int* device);  // of this thread
  // Does the same as use_device, but does nothing if this process has not used the device yet. A thread that has chosen
  // no device has device 0 as its current device. If restore_device called use_device for device 0 in this case, it
  // would occupy memory on device 0.
  int (*restore_device)(int device);
  // Loads all kernels onto this thread's device. May wait for the device. Must be called before the device has work
  // that waits for other ranks. Without this call CUDA would load each kernel at the kernel's first launch, and might
  // wait for the device before it loads the kernel. This could be a deadlock, because the device may run a kernel of
  // NCCL that waits for a rank, and this rank may wait for the launch.
  int (*prepare_device)();
  // Sets *device to the device whose memory contains `pointer`. For the host's memory (pinned or not) it sets *device
  // to -1.
  int (*device_of)(const void* pointer, int* device);

  // Allocates or frees memory. These two functions may wait for the device.
  int (*allocate)(ronda_cuda_memory kind, size_t bytes, void** memory);
  int (*release)(ronda_cuda_memory kind, void* memory);

  // The following functions are for memory that several ranks of a host use, in one process or in several.
  //
  // Sets *bytes to the unit of the sizes of shared memory. Returns an error if the device cannot share memory, or if
  // the driver lacks cuStreamBatchMemOp_v2.
  int (*sharing_unit)(size_t* bytes);
  // Allocates `bytes` bytes of this thread's device, a multiple of the unit, and sets *file to a descriptor of them.
  // The caller closes the descriptor, and may send it to other processes. The memory exists as long as a process has a
  // descriptor of it or has mapped it.
  int (*allocate_shared)(size_t bytes, int* file);
  // Maps the memory of `count` descriptors for this thread's device, one after the other from *memory on. Each has
  // `bytes` bytes. The memory may be on other devices, if this device can access them. unmap_shared gets the same
  // sizes. unmap_shared may wait for the device.
  int (*map_shared)(const int* files, int count, size_t bytes, void** memory);
  int (*unmap_shared)(void* memory, int count, size_t bytes);
  // Lets all devices address whole pages of the host's memory, which may be shared with other processes. Sets
  // *on_device to the address that devices use. Both functions may wait for the device.
  int (*register_host)(void* memory, size_t bytes, void** on_device);
  int (*unregister_host)(void* memory);

  // Creates a stream with the highest priority that the device offers. Work on this stream does not wait for the
  // default stream.
  int (*create_stream)(void** stream);
  int (*destroy_stream)(void* stream);
  // Sets *capturing to 1 if the stream is being captured into a graph, else to 0. For the default stream, sets
  // *capturing to 1 if work on the default stream would break the capture of another stream.
  int (*is_capturing)(void* stream, int* capturing);
  // Sets *id to a number that no other stream of the process ever has. The stream's handle cannot identify the stream,
  // because CUDA reuses handles, and the default streams of all threads have the same handle. Fails while the stream is
  // being captured.
  int (*stream_id)(void* stream, uint64_t* id);

  int (*create_event)(int timing, void** event);  // timing: not 0 if elapsed_ms will be used
  int (*destroy_event)(void* event);
  int (*record_event)(void* event, void* stream);
  int (*wait_event)(void* stream, void* event);  // the stream waits, not the caller
  int (*query_event)(void* event, int* done);
  int (*synchronize_event)(void* event);  // blocks
  int (*elapsed_ms)(void* begin, void* end, float* ms);

  // All functions below put their work on `stream`, which runs it in the order of the calls.
  int (*copy)(void* dst, const void* src, size_t bytes, void* stream);  // between any memories, host memory pinned
  int (*fill_zero)(void* dst, size_t bytes, void* stream);
  // Puts `count` operations on the stream, which carries them out in their order (cuStreamBatchMemOp).
  int (*run_word_ops)(const ronda_cuda_word_op* ops, int count, void* stream);
  int (*pack)(const ronda::kernels::cuda::PackCall* call, void* stream);
  int (*unpack)(const ronda::kernels::cuda::UnpackCall* call, void* stream);
  int (*reduce)(const ronda::kernels::cuda::ReduceCall* call, void* stream);
  int (*find_non_finite)(const ronda::kernels::cuda::NonFiniteCall* call, void* stream);
  int (*add_scaled)(const ronda::kernels::cuda::AddScaledCall* call, void* stream);
  int (*adasum_dots)(const ronda::kernels::cuda::DotsCall* call, void* stream);
  int (*adasum_combine)(const ronda::kernels::cuda::CombineCall* call, void* stream);

  // These two functions begin and end a named span of the calling thread (NVTX, in the domain "Ronda"). Spans may be
  // nested. Profilers show the span, and the work that the thread gives to the GPU during the span. Without a profiler
  // the functions do nothing. They need no driver.
  void (*begin_range)(const char* name);
  void (*end_range)();
};

// The only symbol that the plugin exports.
#define RONDA_CUDA_PLUGIN_SYMBOL "ronda_cuda_plugin_table"
const ronda_cuda_plugin* ronda_cuda_plugin_table();

}  // extern "C"

#endif  // RONDA_RUNTIME_CUDA_PLUGIN_H_
