// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/kernels.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/gradients.h"
#include "kernels/cuda/map_launches.h"
#include "kernels/cuda/reduce.h"

namespace ronda::kernels::cuda {
namespace {

// The maximum number of blocks that the host runs per launch. Large tensors have more tiles, so a block works on
// several tiles, as on a device.
constexpr uint32_t kMaxGrid = 256;

struct HostLaunch {
  template <class Body>
  int operator()(const Body& body, uint32_t blocks) const {
    const uint32_t grid = std::min(blocks, kMaxGrid);
    // A device runs blocks in any order. This loop starts in the middle, so that neither the first nor the last block
    // runs last.
    for (uint32_t i = 0; i < grid; ++i) body(HostBlock((grid / 2 + i) % grid, grid));
    return 0;
  }
};

}  // namespace

int HostPack(const PackCall& call) { return LaunchPack(call, HostLaunch()); }

int HostUnpack(const UnpackCall& call) { return LaunchUnpack(call, HostLaunch()); }

int HostReduce(const ReduceCall& call) { return LaunchReduce(call, HostLaunch()); }

int HostFindNonFinite(const NonFiniteCall& call) {
  std::fill_n(call.found, call.tensor_count, uint8_t{0});
  return LaunchFindNonFinite(call, HostLaunch());
}

int HostAddScaled(const AddScaledCall& call) { return LaunchAddScaled(call, HostLaunch()); }

int HostDots(const DotsCall& call) { return LaunchDots(call, HostLaunch()); }

int HostCombine(const CombineCall& call) { return LaunchCombine(call, HostLaunch()); }

}  // namespace ronda::kernels::cuda
