// SPDX-License-Identifier: Apache-2.0

// The functions that run kernels, on a device or on the CPU.
#ifndef RONDA_KERNELS_CUDA_KERNELS_H_
#define RONDA_KERNELS_CUDA_KERNELS_H_

#include "kernels/cuda/calls.h"

namespace ronda::kernels::cuda {

// The kernels, launched on a stream (a cudaStream_t) of the current device. They return 0 or a cudaError_t, and do not
// wait. A call of up to 448 tensors is one launch (kMaxSegments in block.h).
int DevicePack(const PackCall& call, void* stream);
int DeviceUnpack(const UnpackCall& call, void* stream);
int DeviceReduce(const ReduceCall& call, void* stream);
int DeviceFindNonFinite(const NonFiniteCall& call, void* stream);
int DeviceAddScaled(const AddScaledCall& call, void* stream);
int DeviceDots(const DotsCall& call, void* stream);
int DeviceCombine(const CombineCall& call, void* stream);

// These functions load all of these kernels onto the current device, and return 0 or a cudaError_t. Without them CUDA
// loads each kernel at its first launch, and may wait for the device before.
int LoadMapKernels();
int LoadReduceKernels();
int LoadGradientKernels();

// The kernels for CUDA devices, compiled for the CPU. The calling thread runs them to the end on memory of the host.
// It is the same code, run block by block and thread by thread. For tests, and for a fake device that the CPU plays.
//
// They return 0, or cudaErrorInvalidValue for a call that is not supported.
int HostPack(const PackCall& call);
int HostUnpack(const UnpackCall& call);
int HostReduce(const ReduceCall& call);
int HostFindNonFinite(const NonFiniteCall& call);
int HostAddScaled(const AddScaledCall& call);
int HostDots(const DotsCall& call);
int HostCombine(const CombineCall& call);

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_KERNELS_H_
