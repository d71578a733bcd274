// SPDX-License-Identifier: Apache-2.0

// Prepares kernels for the threads of streams. PrepareKernel copies the parameters, as a kernel launch does, and looks
// up the device memory that they point to.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_KERNELS_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_KERNELS_H_

#include <functional>
#include <vector>

#include "kernels/cuda/calls.h"
#include "tests/testing/fake_cuda/fake_memory.h"

namespace ronda::testing {

// A kernel that is ready to run, and the addresses of the memory that it uses.
struct PreparedKernel {
  std::function<void()> run;
  std::vector<const void*> memory;
};

// If a parameter points to memory that `device` cannot address, `run` of the result is empty.
PreparedKernel PrepareKernel(const kernels::cuda::PackCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::UnpackCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::ReduceCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::NonFiniteCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::AddScaledCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::DotsCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::CombineCall& call, int device, const FakeMemory& memory);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_KERNELS_H_
