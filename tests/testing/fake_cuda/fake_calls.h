// SPDX-License-Identifier: Apache-2.0

// Helpers that the fake plugin's functions share (fake_cuda.cc, fake_capture.cc, fake_sharing.cc).
#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CALLS_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CALLS_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "tests/testing/fake_cuda/fake_capture.h"
#include "tests/testing/fake_cuda/fake_machine.h"

namespace ronda::testing {

// Returns the fake machine of this process.
FakeMachine& Machine();

inline thread_local int this_threads_device = 0;
inline thread_local int this_threads_capture_mode = 0;
inline thread_local size_t this_threads_waits = 0;
inline thread_local size_t this_threads_changes = 0;

inline int CurrentError() { return Machine().ErrorOf(this_threads_device); }

// Returns the error of a call that creates an object on this thread's device. Like CUDA, creates a context for it.
inline int ErrorOfOpening() {
  const int error = CurrentError();
  if (error == kCudaSuccess) Machine().OpenContext(this_threads_device);
  return error;
}

// Waits for this thread's device. `waiting` counts the calls that are waiting in this function.
inline void WaitForDevice(std::atomic<int>& waiting) {
  ++this_threads_waits;
  waiting.fetch_add(1);
  Machine().AwaitDevice(this_threads_device);
  waiting.fetch_sub(1);
}

// These functions wait for the device if FakeCuda::Options says so, as CUDA may do before it allocates or frees memory.
inline void WaitBeforeAllocation() {
  if (Machine().options().allocations != FakeCuda::Options::Allocations::kWaitForTheDevice) return;
  WaitForDevice(Machine().calls().waiting_allocations);
}
inline void WaitBeforeFree() {
  if (Machine().options().frees != FakeCuda::Frees::kWaitForTheDevice) return;
  WaitForDevice(Machine().calls().waiting_frees);
}

// Calls `action` with the stream that `handle` names, and returns the error of `action`.
template <typename Action>
int WithStream(void* handle, const Action& action) {
  if (const int error = CurrentError(); error != 0) return error;
  const std::shared_ptr<FakeStream> stream = Machine().StreamOf(handle, this_threads_device);
  return stream == nullptr ? kCudaInvalidHandle : action(*stream);
}

// Like WithStream, for calls that enqueue work. Nothing can be enqueued on the default stream while a stream that CUDA
// orders with it is being captured.
template <typename Action>
int WithStreamForWork(void* handle, const Action& action) {
  if (handle == nullptr) {
    const auto capture = Machine().CaptureBesideDefaultStream(this_threads_device);
    if (capture != nullptr) return capture->Invalidate(kCudaCaptureImplicit);
  }
  return WithStream(handle, action);
}

inline int Enqueue(void* handle, std::function<void()> run) {
  return WithStreamForWork(handle, [&](FakeStream& stream) { return stream.Enqueue(std::move(run)); });
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_CALLS_H_
