// SPDX-License-Identifier: Apache-2.0

#include "examples/cuda_mnist/launch.h"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace cuda_mnist {
namespace {

constexpr int kThreads = 256;  // threads per block

template <class Elements>
__global__ void ComputeElements(const Elements elements) {
  const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (i < elements.count) elements(i);
}

}  // namespace

template <class Elements>
void Launch(const Elements& elements, void* stream) {
  if (elements.count == 0) return;
  const unsigned blocks = (static_cast<unsigned>(elements.count) + kThreads - 1) / kThreads;
  ComputeElements<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(elements);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string("launch of a kernel: ") + cudaGetErrorString(error));
}

template void Launch(const GatherImages&, void*);
template void Launch(const AddBias&, void*);
template void Launch(const Relu&, void*);
template void Launch(const ReluGradient&, void*);
template void Launch(const MaxPool&, void*);
template void Launch(const MaxPoolGradient&, void*);
template void Launch(const ImageToPatches&, void*);
template void Launch(const PatchesToImage&, void*);
template void Launch(const SoftmaxCrossEntropy&, void*);
template void Launch(const SgdUpdate&, void*);

}  // namespace cuda_mnist
