// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map_launches.h"

namespace ronda::kernels::cuda {

int DevicePack(const PackCall& call, void* stream) {
  return LaunchPack(call, DeviceLaunch{static_cast<cudaStream_t>(stream)});
}

int DeviceUnpack(const UnpackCall& call, void* stream) {
  return LaunchUnpack(call, DeviceLaunch{static_cast<cudaStream_t>(stream)});
}

int LoadMapKernels() {
  cudaError_t error = cudaSuccess;
  LaunchEveryMap(DeviceLoad{&error});
  return error;
}

}  // namespace ronda::kernels::cuda
