#include "tests/testing/fake_cuda/fake_kernels.h"

namespace ronda::testing {

std::function<void()> PrepareKernel(const kernels::cuda::PackCall&, int, const FakeMemory&) { return nullptr; }
std::function<void()> PrepareKernel(const kernels::cuda::UnpackCall&, int, const FakeMemory&) { return nullptr; }
std::function<void()> PrepareKernel(const kernels::cuda::ReduceCall&, int, const FakeMemory&) { return nullptr; }
std::function<void()> PrepareKernel(const kernels::cuda::NonFiniteCall&, int, const FakeMemory&) { return nullptr; }
std::function<void()> PrepareKernel(const kernels::cuda::AddScaledCall&, int, const FakeMemory&) { return nullptr; }
std::function<void()> PrepareKernel(const kernels::cuda::DotsCall&, int, const FakeMemory&) { return nullptr; }
std::function<void()> PrepareKernel(const kernels::cuda::CombineCall&, int, const FakeMemory&) { return nullptr; }

}  // namespace ronda::testing
