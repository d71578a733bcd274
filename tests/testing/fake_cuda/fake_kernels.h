// Kernels, run by the thread of a stream. Host memory of a call is copied, as by a launch; what it points to on the
// device is looked up there.
#ifndef RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_KERNELS_H_
#define RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_KERNELS_H_

#include <functional>
#include <vector>

#include "kernels/cuda/calls.h"
#include "tests/testing/fake_cuda/fake_memory.h"

namespace ronda::testing {

// A kernel that is ready to run, and where the memory is that it uses.
struct PreparedKernel {
  std::function<void()> run;
  std::vector<const void*> memory;
};

// No function if a pointer is not to memory that `device` can address.
PreparedKernel PrepareKernel(const kernels::cuda::PackCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::UnpackCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::ReduceCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::NonFiniteCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::AddScaledCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::DotsCall& call, int device, const FakeMemory& memory);
PreparedKernel PrepareKernel(const kernels::cuda::CombineCall& call, int device, const FakeMemory& memory);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_FAKE_CUDA_FAKE_KERNELS_H_
