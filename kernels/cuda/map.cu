#include "kernels/cuda/device_kernels.h"
#include "kernels/cuda/device_launch.h"
#include "kernels/cuda/map_launches.h"

namespace ronda::kernels::cuda {

int DevicePack(const PackCall& call, void* stream) {
  const DeviceLaunch launch = {static_cast<cudaStream_t>(stream)};
  if (call.wire.blocks != Wire::Blocks::kNone) return LaunchPackBlocks(call, launch);
  return LaunchPackElements(call, launch);
}

int DeviceUnpack(const UnpackCall& call, void* stream) {
  const DeviceLaunch launch = {static_cast<cudaStream_t>(stream)};
  const bool in_blocks = call.wire.blocks != Wire::Blocks::kNone;
  const int error = in_blocks ? LaunchUnpackBlocks(call, launch) : LaunchUnpackElements(call, launch);
  return error != 0 ? error : LaunchDecide(call, launch);
}

}  // namespace ronda::kernels::cuda
