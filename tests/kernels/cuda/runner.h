// Runs the kernels under test. The same tests are linked with host_runner.cc, where the CPU runs the device's code, and
// with gpu_runner.cc, where a GPU does.
#ifndef RONDA_TESTS_KERNELS_CUDA_RUNNER_H_
#define RONDA_TESTS_KERNELS_CUDA_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/calls.h"

namespace ronda::kernels::cuda {

// Why nothing can be run here ("no CUDA device: ..."); "" if it can.
std::string WhyNotHere();

// Memory that both the kernels and the test can address.
void* AllocateShared(size_t bytes);
void ReleaseShared(void* memory);

// Runs a call to its end. Returns what the kernel's function does.
int RunCall(const PackCall& call);
int RunCall(const UnpackCall& call);
int RunCall(const ReduceCall& call);
int RunCall(const NonFiniteCall& call);
int RunCall(const AddScaledCall& call);
int RunCall(const DotsCall& call);
int RunCall(const CombineCall& call);

// Bytes in such memory, `misalignment` bytes after an address of alignment 64, between guard bytes that must not
// change.
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

  // True if nothing but the bytes was written.
  bool GuardsIntact() const;

 private:
  size_t size_;
  size_t offset_;
  uint8_t* memory_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_TESTS_KERNELS_CUDA_RUNNER_H_
