// SPDX-License-Identifier: Apache-2.0

// Gives tests of the client API access to the fake CUDA (tests/testing/fake_cuda) in a shared library. These tests must
// not be linked with the fake. Ronda loads the same library because Ronda's settings name it, as in a program with
// GPUs.
#ifndef RONDA_TESTS_TESTING_FAKE_GPU_FAKE_GPU_H_
#define RONDA_TESTS_TESTING_FAKE_GPU_FAKE_GPU_H_

#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/plugin.h"

namespace ronda::testing {

// The paths at which tests find the libraries.
inline constexpr const char* kFakeCudaPath = "tests/testing/fake_cuda/libfake_cuda.so";
inline constexpr const char* kFakeNcclLibraryPath = "tests/testing/fake_nccl/libfake_nccl.so";

// Returns the library's table of functions. This function and those below throw std::runtime_error if the library
// cannot be loaded or a call fails.
const ronda_cuda_plugin& LoadedFakeCuda();

// Enqueues `work` on the stream, which runs it in order, like a kernel.
void EnqueueOnFakeGpu(void* stream, std::function<void()> work);

// Describes the objects on all GPUs that have not been released, for example as "2 streams, 1 events". Returns "" if
// there are none.
std::string FakeGpuLeaks();

// Counts the communicators of the fake NCCL in this process.
struct FakeNcclCounts {
  int live = 0;
  int made = 0;
  int aborted = 0;
};
FakeNcclCounts CountFakeNcclCommunicators();

// Allocates memory on the calling thread's GPU.
void* AllocateOnFakeGpu(std::size_t bytes);
void ReleaseOnFakeGpu(void* memory);

// A stream of a fake GPU. The constructor makes the GPU the calling thread's current GPU.
//
// Thread-compatible. The destructor waits for the stream.
class FakeGpuStream {
 public:
  explicit FakeGpuStream(int device);
  FakeGpuStream(const FakeGpuStream&) = delete;
  FakeGpuStream& operator=(const FakeGpuStream&) = delete;
  ~FakeGpuStream();

  void* handle() const { return handle_; }

  void Enqueue(std::function<void()> work) const { EnqueueOnFakeGpu(handle_, std::move(work)); }

  // Waits until the stream has completed its work.
  void Synchronize() const;

 private:
  void* handle_ = nullptr;
};

// Memory on the GPU of a stream. Later work of the stream finds `values` in it, or zeros. `stream` must outlive the
// array.
template <class T>
class FakeGpuArray {
 public:
  FakeGpuArray(const FakeGpuStream& stream, std::size_t size);
  FakeGpuArray(const FakeGpuStream& stream, const std::vector<T>& values) : FakeGpuArray(stream, values.size()) {
    Set(values);
  }
  FakeGpuArray(const FakeGpuArray&) = delete;
  FakeGpuArray& operator=(const FakeGpuArray&) = delete;
  ~FakeGpuArray();

  T* data() const { return data_; }
  std::size_t size() const { return size_; }

  // Enqueues a write of the values on the stream. Does not wait.
  void Set(const std::vector<T>& values) const {
    stream_.Enqueue([=, data = data_] { std::memcpy(data, values.data(), values.size() * sizeof(T)); });
  }

  // Waits until the stream has completed all of its work, and returns the content.
  std::vector<T> Get() const {
    stream_.Synchronize();
    return std::vector<T>(data_, data_ + size_);
  }

 private:
  const FakeGpuStream& stream_;
  const std::size_t size_;
  T* data_;
};

template <class T>
FakeGpuArray<T>::FakeGpuArray(const FakeGpuStream& stream, std::size_t size)
    : stream_(stream), size_(size), data_(static_cast<T*>(AllocateOnFakeGpu(size * sizeof(T)))) {
  Set(std::vector<T>(size));
}

template <class T>
FakeGpuArray<T>::~FakeGpuArray() {
  stream_.Synchronize();
  ReleaseOnFakeGpu(data_);
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_GPU_FAKE_GPU_H_
