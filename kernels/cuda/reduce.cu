// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map_launches.h"
#include "kernels/cuda/reduce.h"

namespace ronda::kernels::cuda {

int DeviceReduce(const ReduceCall& call, void* stream) {
  return LaunchReduce(call, DeviceLaunch{static_cast<cudaStream_t>(stream)});
}

int LoadReduceKernels() {
  cudaError_t error = cudaSuccess;
  LaunchEveryReduce(DeviceLoad{&error});
  return error;
}

}  // namespace ronda::kernels::cuda
