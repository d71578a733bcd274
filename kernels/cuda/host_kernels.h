#ifndef RONDA_KERNELS_CUDA_HOST_KERNELS_H_
#define RONDA_KERNELS_CUDA_HOST_KERNELS_H_

#include "kernels/cuda/calls.h"

namespace ronda::kernels::cuda {

// The kernels for CUDA devices, compiled for the CPU and run by the calling thread, to the end: the same code, block by
// block and thread by thread, on memory of the host. For tests, and for a device that is made of the CPU.
//
// They return 0, or cudaErrorInvalidValue for a call that does not exist.
int HostPack(const PackCall& call);
int HostUnpack(const UnpackCall& call);
int HostReduce(const ReduceCall& call);
int HostFindNonFinite(const NonFiniteCall& call);
int HostAddScaled(const AddScaledCall& call);
int HostDots(const DotsCall& call);
int HostCombine(const CombineCall& call);

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_HOST_KERNELS_H_
