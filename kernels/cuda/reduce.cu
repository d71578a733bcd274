#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/reduce_launches.h"

namespace ronda::kernels::cuda {

int DeviceReduce(const ReduceCall& call, void* stream) {
  const DeviceLaunch launch = {static_cast<cudaStream_t>(stream)};
  if (call.wire.blocks != Wire::Blocks::kNone) return LaunchReduceBlocks(call, launch);
  return LaunchReduceElements(call, launch);
}

}  // namespace ronda::kernels::cuda
