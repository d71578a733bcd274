// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_EXAMPLES_CUDA_MNIST_LAUNCH_H_
#define RONDA_EXAMPLES_CUDA_MNIST_LAUNCH_H_

#include "examples/cuda_mnist/elements.h"

namespace cuda_mnist {

// Makes `stream` (a cudaStream_t) compute all elements; Elements is a struct from elements.h. Throws std::runtime_error
// if the launch fails.
template <class Elements>
void Launch(const Elements& elements, void* stream);

extern template void Launch(const GatherImages&, void*);
extern template void Launch(const AddBias&, void*);
extern template void Launch(const Relu&, void*);
extern template void Launch(const ReluGradient&, void*);
extern template void Launch(const MaxPool&, void*);
extern template void Launch(const MaxPoolGradient&, void*);
extern template void Launch(const ImageToPatches&, void*);
extern template void Launch(const PatchesToImage&, void*);
extern template void Launch(const SoftmaxCrossEntropy&, void*);
extern template void Launch(const SgdUpdate&, void*);

}  // namespace cuda_mnist

#endif  // RONDA_EXAMPLES_CUDA_MNIST_LAUNCH_H_
