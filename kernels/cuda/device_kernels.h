#ifndef RONDA_KERNELS_CUDA_DEVICE_KERNELS_H_
#define RONDA_KERNELS_CUDA_DEVICE_KERNELS_H_

#include "kernels/cuda/calls.h"

namespace ronda::kernels::cuda {

// The kernels, launched on a stream (a cudaStream_t) of the current device. They return 0 or a cudaError_t, and wait
// for nothing. A call of up to 448 tensors is one launch (tiling.h).
int DevicePack(const PackCall& call, void* stream);
int DeviceUnpack(const UnpackCall& call, void* stream);  // a vote's decision is a launch of its own
int DeviceReduce(const ReduceCall& call, void* stream);
int DeviceFindNonFinite(const NonFiniteCall& call, void* stream);
int DeviceAddScaled(const AddScaledCall& call, void* stream);
int DeviceDots(const DotsCall& call, void* stream);
int DeviceCombine(const CombineCall& call, void* stream);

// Load all of these kernels onto the current device; 0 or a cudaError_t. CUDA would do so for each with its first
// launch, and may wait for the device before it does.
int LoadMapKernels();
int LoadReduceKernels();
int LoadGradientKernels();

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_DEVICE_KERNELS_H_
