// SPDX-License-Identifier: Apache-2.0

// A CUDA plugin (runtime/cuda/plugin.h) that simulates devices on the CPU. Device memory is really host memory. Each
// stream is a thread, which runs the stream's work in order while the caller continues. The kernels are those of
// kernels/cuda, compiled for the host. Tests whose ranks are threads link this library. Ranks that are processes load
// it as libfake_cuda.so.
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

// Enqueues a call of `function(context)` on `stream`. Libraries that run collectives on streams look this function up
// by name. Returns 0 or an error, as the plugin's functions do.
__attribute__((visibility("default"))) int fake_cuda_enqueue(void* stream, void (*function)(void*), void* context);

// Returns the address through which a `function` of fake_cuda_enqueue accesses the device memory at `address`.
__attribute__((visibility("default"))) void* fake_cuda_view(const void* address);

// Returns the device that has memory at `address`, or -1 if the address is in host memory.
__attribute__((visibility("default"))) int fake_cuda_device_of(const void* address);

// Waits for this thread's device, if FakeCuda::Frees says so. Libraries that free their own memory call this function
// first.
__attribute__((visibility("default"))) void fake_cuda_wait_before_free();

// Returns whether `address` is in pinned host memory.
__attribute__((visibility("default"))) int fake_cuda_is_pinned(const void* address);

// Sets `*idle` to 1 if `stream` has completed all of its work, and to 0 otherwise.
__attribute__((visibility("default"))) int fake_cuda_is_idle(void* stream, int* idle);

// Waits until the streams of this thread's device are idle.
__attribute__((visibility("default"))) void fake_cuda_wait_for_device();

// Returns whether this process has a context on the device, because it called use_device or created an object there.
__attribute__((visibility("default"))) int fake_cuda_has_context(int device);

// The individual steps of map_shared and unmap_shared. fake_cuda_give_access lets `device` access a range.
__attribute__((visibility("default"))) void* fake_cuda_reserve(size_t bytes);
__attribute__((visibility("default"))) int fake_cuda_map(void* address, size_t bytes, int file);
__attribute__((visibility("default"))) int fake_cuda_give_access(void* range, size_t bytes, int device);
__attribute__((visibility("default"))) int fake_cuda_free_range(void* range);

// Writes the result of FakeCuda::Leaks() for this process into `text`, in at most `size` bytes.
__attribute__((visibility("default"))) void fake_cuda_leaks(char* text, size_t size);
}

namespace ronda::testing {

// What the table's functions return, numbered as in CUDA.
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

// The devices of this process. They exist as long as this object. A process can have only one such object at a time.
//
// Misuse is an error: invalid handles, memory of another device, host memory that is not pinned, and accesses beyond an
// allocation. So are kernels on streams of a device that is not the thread's current one, recording an event on a
// stream of another device, and asking for the time between events without timing. With HostAccess::kFatal, the program
// crashes if anything but a stream accesses device memory.
//
// Thread-safe. When the object is destroyed, nothing may keep its streams from completing their work. The destructor
// waits for calls that are waiting for a device in order to free or allocate memory.
class FakeCuda {
 public:
  enum class Frees { kReturnAtOnce, kWaitForTheDevice };
  // The default number of queues of CUDA's driver, and the most that CUDA_DEVICE_MAX_CONNECTIONS can set.
  static constexpr int kQueues = 8;
  static constexpr int kMostQueues = 32;
  struct Options {
    int devices = 8;  // 0: a driver without devices
    // The number of devices per GPU. Like MIG instances, the devices of a GPU have the same PCI bus. If `parts` is more
    // than 1, each device has a UUID.
    int parts = 1;
    size_t memory_bytes = size_t{1} << 30;
    int driver_error = kCudaSuccess;  // of every call, as on a machine without a driver
    uint64_t delay_seed = 0;          // not 0: streams sometimes pause
    FakeMemory::HostAccess host_access = FakeMemory::HostAccess::kAllowed;
    // With kLazy, a kernel launch waits for all streams of the device, unless prepare_device was called for the device.
    enum class Loading { kEager, kLazy } loading = Loading::kEager;
    // CUDA waits for the device before it frees memory. The wait never ends if the device hangs.
    Frees frees = Frees::kReturnAtOnce;
    // CUDA may also wait for the device before it allocates device memory or pins host memory.
    enum class Allocations { kReturnAtOnce, kWaitForTheDevice } allocations = Allocations::kReturnAtOnce;
    // The number of queues of each device, which its streams share. A wait that blocks a stream also blocks all later
    // work in the same queue.
    int queues = kMostQueues;
    // What memory of other ranks a device can map: memory on any device; only memory on the device itself, as on a
    // machine without peer access; or none, as with an old driver.
    enum class Sharing { kAllDevices, kSameDevice, kNone } sharing = Sharing::kAllDevices;
  };

  explicit FakeCuda(const Options& options);
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;
  ~FakeCuda();

  const ronda_cuda_plugin* table() const;

  // Makes every later call for the device return `error`, as after a failed kernel.
  void FailDevice(int device, int error);

  // Sets the result of is_capturing for the stream.
  void SetCapturing(void* stream, int capturing);

  // Frees memory when the stream reaches this point, as cudaFreeAsync does. If a stream uses the memory after that,
  // even in work enqueued before, the device fails and prints a line.
  void FreeOn(void* stream, void* memory);

  // Returns the number of allocations on all devices so far.
  size_t allocations() const;
  size_t peak_bytes() const;  // the most memory of a device that was allocated at one time
  size_t created_events() const;
  size_t finished_kernels() const;

  // These functions return how many times functions of the table have been called so far. calls() counts all functions
  // except those for the current device, ranges and error texts. Each of the others counts the calls of one function.
  size_t calls() const;
  size_t recorded_events() const;
  size_t awaited_events() const;  // by streams
  size_t queried_events() const;
  size_t zero_fills() const;
  size_t word_batches() const;  // calls of run_word_ops
  size_t looks_at_pointers() const;
  size_t looks_at_streams() const;

  // Returns how many times the calling thread has waited for a device so far (in synchronize_event, launches, frees and
  // allocations), or has found unfinished work in query_event.
  static size_t HostWaitsOfThisThread();

  // Returns how many times the calling thread has called use_device and restore_device so far.
  static size_t DeviceChangesOfThisThread();

  // Returns the names that all threads have passed to begin_range since the last call.
  std::vector<std::string> TakeRanges();

  // These functions return how many calls are waiting for a device before they free memory, or before they allocate it.
  int waiting_frees() const;
  int waiting_allocations() const;

  // Describes the objects that have not been released or destroyed, for example as "2 streams, 1 events". Returns "" if
  // there are none.
  std::string Leaks() const;
};

// Blocks a stream at its current position, until Release() or the destructor.
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

// Copy between host and device memory, in the calling thread. The test must ensure that no stream accesses the memory
// at the same time.
std::string ReadDevice(const void* memory, size_t bytes);
void WriteDevice(void* memory, absl::string_view content);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CUDA_H_
