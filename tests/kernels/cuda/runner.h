// SPDX-License-Identifier: Apache-2.0

// Runs the kernels under test. Each test is linked twice: with host_runner.cc, which runs the device code on the CPU,
// and with gpu_runner.cc, which runs it on a GPU.
#ifndef RONDA_TESTS_KERNELS_CUDA_RUNNER_H_
#define RONDA_TESTS_KERNELS_CUDA_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/calls.h"

namespace ronda::kernels::cuda {

// Returns the reason why this machine cannot run kernels ("no CUDA device: ..."), or "" if it can.
std::string WhyNotHere();

// Memory that both the kernels and the test can address.
void* AllocateShared(size_t bytes);
void ReleaseShared(void* memory);

// Runs the kernel of a call and waits for it. Returns 0 or the error.
int RunCall(const PackCall& call);
int RunCall(const UnpackCall& call);
int RunCall(const ReduceCall& call);
int RunCall(const NonFiniteCall& call);
int RunCall(const AddScaledCall& call);
int RunCall(const DotsCall& call);
int RunCall(const CombineCall& call);

// Bytes from AllocateShared(), `misalignment` bytes after a multiple of 64, between guard bytes that must not change.
class SharedBytes {
 public:
  explicit SharedBytes(size_t size, size_t misalignment = 0);
  ~SharedBytes();
  SharedBytes(SharedBytes&& other) noexcept;
  SharedBytes& operator=(SharedBytes&&) = delete;

  uint8_t* data() const { return memory_ + offset_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }

  // Returns whether the guard bytes are unchanged.
  bool GuardsIntact() const;

 private:
  size_t size_;
  size_t offset_;
  uint8_t* memory_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_TESTS_KERNELS_CUDA_RUNNER_H_
