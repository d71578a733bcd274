// SPDX-License-Identifier: Apache-2.0

// A CUDA plugin (runtime/cuda/plugin.h) whose devices are the CPU. Device memory is in fact memory of the host. Streams
// are threads, which do their work in order while the caller continues. Kernels are those of kernels/cuda, compiled for
// the host. Tests whose ranks are threads link this library. Ranks that are processes load it as libfake_cuda.so.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CUDA_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CUDA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/cuda/plugin.h"
#include "tests/testing/fake_cuda/fake_memory.h"

extern "C" {

// Makes `stream` call `function(context)` after all earlier work of the stream. Libraries that run collectives on
// streams find this function by its name. Returns 0, or an error as the plugin's functions do.
__attribute__((visibility("default"))) int fake_cuda_enqueue(void* stream, void (*function)(void*), void* context);

// Returns the address at which a `function` of fake_cuda_enqueue finds the data that the device has at `address`.
__attribute__((visibility("default"))) void* fake_cuda_view(const void* address);

// Returns the device whose memory is at `address`, or -1 for memory of the host.
__attribute__((visibility("default"))) int fake_cuda_device_of(const void* address);

// Waits for this thread's device, if CUDA here waits before it frees memory (FakeCuda::Frees). Libraries that free
// their own memory call this function.
__attribute__((visibility("default"))) void fake_cuda_wait_before_free();

// Returns whether `address` is in pinned memory of the host.
__attribute__((visibility("default"))) int fake_cuda_is_pinned(const void* address);

// Sets `idle` to 1 if `stream` has completed all of its work, otherwise to 0.
__attribute__((visibility("default"))) int fake_cuda_is_idle(void* stream, int* idle);

// Waits until the streams of this thread's device are idle.
__attribute__((visibility("default"))) void fake_cuda_wait_for_device();

// Returns whether this process has used the device, either by use_device, or by creating an object on the device.
__attribute__((visibility("default"))) int fake_cuda_has_context(int device);

// These functions are the steps of map_shared and unmap_shared. `device` gets access to a range.
__attribute__((visibility("default"))) void* fake_cuda_reserve(size_t bytes);
__attribute__((visibility("default"))) int fake_cuda_map(void* address, size_t bytes, int file);
__attribute__((visibility("default"))) int fake_cuda_give_access(void* range, size_t bytes, int device);
__attribute__((visibility("default"))) int fake_cuda_free_range(void* range);

// Writes the text of FakeCuda::Leaks() for this process's devices, in at most `size` bytes.
__attribute__((visibility("default"))) void fake_cuda_leaks(char* text, size_t size);
}

namespace ronda::testing {

// Results of the functions of the table, with CUDA's numbers.
enum FakeCudaError : int {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaInsufficientDriver = 35,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaInvalidHandle = 400,
  kCudaIllegalState = 401,
  kCudaIllegalAddress = 700,
  kCudaLaunchTimeout = 702,
  kCudaAlreadyRegistered = 712,
  kCudaNotRegistered = 713,
  kCudaNotSupported = 801,
  kCudaCaptureUnsupported = 900,
  kCudaCaptureInvalidated = 901,
  kCudaCaptureMerge = 902,
  kCudaCaptureUnmatched = 903,
  kCudaCaptureUnjoined = 904,
  kCudaCaptureIsolation = 905,
  kCudaCaptureImplicit = 906,
  kCudaCapturedEvent = 907,
  kCudaCaptureWrongThread = 908,
};

// The devices of this process, which exist as long as this object. A process may have only one such object at a time.
//
// Wrong use is an error. Examples are handles that do not exist (any more), memory of another device, host memory that
// is not pinned, and accesses beyond an allocation. Other examples are kernels on streams that are not on the thread's
// current device, and events on streams of another device. Times between events without timing are also wrong use. With
// HostAccess::kFatal the program crashes if anything except a stream reads or writes memory of a device.
//
// Thread-safe. Before the object is destroyed, all streams must have completed their work, or must be able to complete
// it. The destructor waits for calls that wait for a device before they free or allocate memory.
class FakeCuda {
 public:
  enum class Frees { kReturnAtOnce, kWaitForTheDevice };
  // The number of queues that CUDA's driver uses by default, and the most that CUDA_DEVICE_MAX_CONNECTIONS may set.
  static constexpr int kQueues = 8;
  static constexpr int kMostQueues = 32;
  struct Options {
    int devices = 8;  // 0: a driver without devices
    // The number of devices that share one GPU, and so its PCI bus, like the parts of a GPU with MIG. If it is more
    // than 1, each device has a UUID.
    int parts = 1;
    size_t memory_bytes = size_t{1} << 30;
    int driver_error = kCudaSuccess;  // of every call, as on a machine without a driver
    uint64_t delay_seed = 0;          // not 0: streams sometimes pause
    FakeMemory::HostAccess host_access = FakeMemory::HostAccess::kAllowed;
    // With kLazy, a kernel launch waits for all streams of the device, unless prepare_device has been called for the
    // device.
    enum class Loading { kEager, kLazy } loading = Loading::kEager;
    // CUDA waits for the device before it frees memory. If the device is stuck, this wait never ends.
    Frees frees = Frees::kReturnAtOnce;
    // CUDA may also wait for the device before it allocates memory on it, or pins memory of the host.
    enum class Allocations { kReturnAtOnce, kWaitForTheDevice } allocations = Allocations::kReturnAtOnce;
    // The number of queues of each device, which its streams share. If a wait of a stream is blocked, all later work in
    // the same queue is held up.
    int queues = kMostQueues;
    // Which memory a device can map that other ranks have allocated: of every device; only of the same device, as on a
    // machine without peer access; or none, as with an old driver.
    enum class Sharing { kAllDevices, kSameDevice, kNone } sharing = Sharing::kAllDevices;
  };

  explicit FakeCuda(const Options& options);
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;
  ~FakeCuda();

  const ronda_cuda_plugin* table() const;

  // After this call, every call for the device returns `error`, as after a kernel that failed.
  void FailDevice(int device, int error);

  // Sets the result of is_capturing for the stream.
  void SetCapturing(void* stream, int capturing);

  // Frees memory when the stream reaches this point, as cudaFreeAsync does. If any stream uses the memory later, even
  // by work that it already has, the device fails and prints a line.
  void FreeOn(void* stream, void* memory);

  // Returns the number of allocations on all devices so far.
  size_t allocations() const;
  size_t peak_bytes() const;  // the most memory of a device that was allocated at one time
  size_t created_events() const;
  size_t finished_kernels() const;

  // These functions return the number of calls of the table's functions so far. calls() counts all functions except the
  // functions for the current device, ranges and error texts. Each of the other counters counts one function.
  size_t calls() const;
  size_t recorded_events() const;
  size_t awaited_events() const;  // by streams
  size_t queried_events() const;
  size_t zero_fills() const;
  size_t word_batches() const;  // calls of run_word_ops
  size_t looks_at_pointers() const;
  size_t looks_at_streams() const;

  // Returns how often the calling thread has waited for a device so far, or has queried work that was not finished.
  // These are calls of synchronize_event, launches, frees and allocations that wait, and calls of query_event that
  // found the work unfinished.
  static size_t HostWaitsOfThisThread();

  // Returns how often the calling thread has changed its device so far, by use_device and restore_device.
  static size_t DeviceChangesOfThisThread();

  // Returns the names that all threads have passed to begin_range since the last call.
  std::vector<std::string> TakeRanges();

  // These functions return how many calls now wait for a device before they free memory, or before they allocate
  // memory.
  int waiting_frees() const;
  int waiting_allocations() const;

  // Returns a text about the objects that have not been released or destroyed, for example "2 streams, 1 events". It is
  // empty if there are none.
  std::string Leaks() const;
};

// Stops a stream at its current position, until this object is released or destroyed.
class StreamHold {
 public:
  explicit StreamHold(void* stream);
  ~StreamHold() { Release(); }
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;

  void Release();

 private:
  struct Gate;
  const std::shared_ptr<Gate> gate_;
};

// Copies between the host and memory of a device, in the calling thread. The test must ensure that no stream writes to
// the memory at the same time.
std::string ReadDevice(const void* memory, size_t bytes);
void WriteDevice(void* memory, absl::string_view content);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CUDA_H_
