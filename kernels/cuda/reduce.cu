#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/every_launch.h"
#include "kernels/cuda/reduce_launches.h"

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
