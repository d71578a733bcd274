// A CUDA plugin (runtime/cuda/plugin.h) whose devices are the CPU: memory of the devices is memory of the host, streams
// are threads, which do things in order and while the caller goes on, and kernels are those of kernels/cuda, compiled
// for the host. It is linked into tests, whose ranks are threads, or loaded by processes as libfake_cuda.so.
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

// Has `function(context)` called when `stream` comes to it, after what the stream has been given before. For libraries
// that do collectives on streams; found by its name. Returns 0, or an error as the plugin's functions do.
__attribute__((visibility("default"))) int fake_cuda_enqueue(void* stream, void (*function)(void*), void* context);

// Where such a function finds what is at `address` for the device.
__attribute__((visibility("default"))) void* fake_cuda_view(const void* address);

// Which device's memory is at `address`; -1: the host's.
__attribute__((visibility("default"))) int fake_cuda_device_of(const void* address);

// Waits for this thread's device, if that is what CUDA does here before it frees memory (FakeCuda::Frees): for what
// such a library does when it frees its own.
__attribute__((visibility("default"))) void fake_cuda_wait_before_free();

// Whether `stream` has come to the end of all that it has been given.
__attribute__((visibility("default"))) int fake_cuda_is_idle(void* stream, int* idle);

// Waits until the streams of this thread's device have nothing to do.
__attribute__((visibility("default"))) void fake_cuda_wait_for_device();

// Whether this process has used the device: has made it current by use_device, or has made an object on it.
__attribute__((visibility("default"))) int fake_cuda_has_context(int device);

// FakeCuda::Leaks() of this process's devices: writes at most `size` bytes.
__attribute__((visibility("default"))) void fake_cuda_leaks(char* text, size_t size);
}

namespace ronda::testing {

// Results of the functions of the table; CUDA's numbers.
enum FakeCudaError : int {
  kCudaSuccess = 0,
  kCudaInvalidValue = 1,
  kCudaOutOfMemory = 2,
  kCudaInsufficientDriver = 35,
  kCudaNoDevice = 100,
  kCudaInvalidDevice = 101,
  kCudaInvalidHandle = 400,
  kCudaIllegalAddress = 700,
  kCudaLaunchTimeout = 702,
};

// The devices of this process, while it lives. One at a time.
//
// Misuse is an error: of handles that are not there (any more), of memory of another device, of host memory that is
// not pinned, of more bytes than were allocated, of kernels on streams of another device than the thread's current one,
// of events on streams of another device, and of times between events that were made without. With HostAccess::kFatal
// it is a crash to read or write memory of a device by anything but a stream.
//
// Thread-safe. All streams must have come to their ends, or be about to, when it is destroyed, which waits for calls
// that wait for a device before they free memory.
class FakeCuda {
 public:
  enum class Frees { kReturnAtOnce, kWaitForTheDevice };
  struct Options {
    int devices = 8;  // 0: a driver without devices
    size_t memory_bytes = size_t{1} << 30;
    int driver_error = kCudaSuccess;  // of every call, as where there is no driver
    uint64_t delay_seed = 0;          // not 0: streams pause now and then
    FakeMemory::HostAccess host_access = FakeMemory::HostAccess::kAllowed;
    // kLazy: to launch a kernel is to wait for all streams of the device, until prepare_device has been called for it.
    enum class Loading { kEager, kLazy } loading = Loading::kEager;
    // Whether streams can wait for words.
    enum class Words { kYes, kNo } words = Words::kYes;
    // A stream that waits longer for a word ends in an error of the device, with a line that says so.
    absl::Duration word_deadline = absl::Seconds(60);
    // CUDA waits for the device before it frees memory, which a device that is stuck turns into a wait for ever.
    Frees frees = Frees::kReturnAtOnce;
  };

  explicit FakeCuda(const Options& options);
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;
  ~FakeCuda();

  const ronda_cuda_plugin* table() const;

  // From now on every call for the device has this error, as after a kernel that went wrong.
  void FailDevice(int device, int error);

  // Sets the result of is_capturing for the stream.
  void SetCapturing(void* stream, int capturing);

  // The stream has the priority of those that create_stream makes (shares_queues). Others have none here.
  void ShareQueues(void* stream);

  // Frees memory when the stream comes here, as cudaFreeAsync does. What uses it after that, in whatever stream, and
  // even if the stream had it before, is an error of the device, with a line that says so.
  void FreeOn(void* stream, void* memory);

  // Of all devices, so far.
  size_t allocations() const;
  size_t peak_bytes() const;  // the most memory that a device had given out at once
  size_t created_events() const;
  size_t finished_kernels() const;

  // Calls of the table so far: of all functions but those of the current device, of ranges and of errors' texts; and of
  // some.
  size_t calls() const;
  size_t recorded_events() const;
  size_t awaited_events() const;  // by streams
  size_t awaited_words() const;
  size_t queried_events() const;
  size_t zero_fills() const;
  size_t looks_at_pointers() const;
  size_t looks_at_streams() const;

  // How often the calling thread has waited for a device so far, or asked whether it had to: calls of
  // synchronize_event, launches and frees that wait, and calls of query_event that found that the device was not there
  // yet.
  static size_t HostWaitsOfThisThread();

  // How often the calling thread has changed its device so far: calls of use_device and restore_device.
  static size_t DeviceChangesOfThisThread();

  // The names of begin_range since the last call, of all threads.
  std::vector<std::string> TakeRanges();

  // Calls that wait for a device before they free memory, now.
  int waiting_frees() const;

  // The objects that have not been released or destroyed: "2 streams, 1 event"; empty if there are none.
  std::string Leaks() const;
};

// Keeps a stream from going on, from where it is, until it is released or destroyed.
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

// Copies between the host and memory of a device, in the calling thread: for tests, which see to it that no stream
// writes there meanwhile.
std::string ReadDevice(const void* memory, size_t bytes);
void WriteDevice(void* memory, absl::string_view content);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CUDA_H_
