// SPDX-License-Identifier: Apache-2.0

// The functions that run kernels, on a device or on the CPU.
#ifndef RONDA_KERNELS_CUDA_KERNELS_H_
#define RONDA_KERNELS_CUDA_KERNELS_H_

#include "kernels/cuda/calls.h"

namespace ronda::kernels::cuda {

// These functions launch the kernels on a stream (a cudaStream_t) of the current device. The functions return 0 or a
// cudaError_t, and do not wait for the kernels. A call of up to 448 tensors is one launch (kMaxSegments in block.h).
int DevicePack(const PackCall& call, void* stream);
int DeviceUnpack(const UnpackCall& call, void* stream);
int DeviceReduce(const ReduceCall& call, void* stream);
int DeviceFindNonFinite(const NonFiniteCall& call, void* stream);
int DeviceAddScaled(const AddScaledCall& call, void* stream);
int DeviceDots(const DotsCall& call, void* stream);
int DeviceCombine(const CombineCall& call, void* stream);

// These functions load all of these kernels onto the current device, and return 0 or a cudaError_t. If a program does
// not call these functions, CUDA loads each kernel at its first launch, and may first wait for the device.
int LoadMapKernels();
int LoadReduceKernels();
int LoadGradientKernels();

// These functions run the kernels for CUDA devices on the CPU. The calling thread runs a kernel to the end, on memory
// of the host. The CPU runs the same code as a device, block by block and thread by thread. The functions are for
// tests, and for a fake device that the CPU simulates.
//
// The functions return 0, or cudaErrorInvalidValue for a call that is not supported.
int HostPack(const PackCall& call);
int HostUnpack(const UnpackCall& call);
int HostReduce(const ReduceCall& call);
int HostFindNonFinite(const NonFiniteCall& call);
int HostAddScaled(const AddScaledCall& call);
int HostDots(const DotsCall& call);
int HostCombine(const CombineCall& call);

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_KERNELS_H_
