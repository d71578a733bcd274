// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/gradients.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/map_launches.h"

namespace ronda::kernels::cuda {

int DeviceFindNonFinite(const NonFiniteCall& call, void* stream) {
  if (call.tensor_count == 0) return 0;
  auto* const on = static_cast<cudaStream_t>(stream);
  const cudaError_t error = cudaMemsetAsync(call.found, 0, static_cast<size_t>(call.tensor_count), on);
  return error != cudaSuccess ? error : LaunchFindNonFinite(call, DeviceLaunch{on});
}

int DeviceAddScaled(const AddScaledCall& call, void* stream) {
  return LaunchAddScaled(call, DeviceLaunch{static_cast<cudaStream_t>(stream)});
}

int DeviceDots(const DotsCall& call, void* stream) {
  return LaunchDots(call, DeviceLaunch{static_cast<cudaStream_t>(stream)});
}

int DeviceCombine(const CombineCall& call, void* stream) {
  return LaunchCombine(call, DeviceLaunch{static_cast<cudaStream_t>(stream)});
}

int LoadGradientKernels() {
  cudaError_t error = cudaSuccess;
  LaunchEveryGradient(DeviceLoad{&error});
  return error;
}

}  // namespace ronda::kernels::cuda
