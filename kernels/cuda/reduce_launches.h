// Which kernels reduce wires, and work on gradients; `launch` is as in map_launches.h.
#ifndef RONDA_KERNELS_CUDA_REDUCE_LAUNCHES_H_
#define RONDA_KERNELS_CUDA_REDUCE_LAUNCHES_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/fp8_map.h"
#include "kernels/cuda/map_launches.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/reduce_bodies.h"
#include "kernels/cuda/tiling.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// Launches a body that counts its tiles itself, and takes any number of them.
template <class Body, class Launch>
int LaunchTiles(const Body& body, const Launch& launch) {
  const uint64_t tiles = body.tiles();
  return tiles == 0 ? 0 : launch(body, static_cast<uint32_t>(std::min(tiles, kMaxTiles)));
}

inline Sources SourcesOf(const ReduceCall& call) {
  return {static_cast<const uint8_t*>(call.sources), call.stride, call.source_count, static_cast<uint8_t*>(call.dst),
          call.granules};
}

template <class Launch>
int LaunchReduceElements(const ReduceCall& call, const Launch& launch) {
  if (!Supports(call.op, call.wire.dtype)) return kInvalidCall;
  const auto reduce = [&](const auto& arithmetic) {
    return LaunchTiles(ReduceBody(SourcesOf(call), arithmetic), launch);
  };
  if (call.wire.dtype == DType::kBool) return reduce(BoolArithmetic(call.op, call.scale));
  if (!IsFloatingPoint(call.wire.dtype)) {
    return VisitInteger(call.wire.dtype,
                        [&]<class E>(ElementType<E>) { return reduce(IntegerArithmetic<E>(call.op, call.scale)); });
  }
  return VisitFloat(call.wire.dtype,
                    [&]<class E>(ElementType<E>) { return reduce(FloatArithmetic<E>(call.op, call.scale)); });
}

template <class Launch>
int LaunchReduceBlocks(const ReduceCall& call, const Launch& launch) {
  if (!Supports(call.op, DType::kFloat32)) return kInvalidCall;
  return VisitFp8(call.wire.blocks, [&]<class Format>(Format) {
    return LaunchTiles(ReduceBlocksBody<Format>(SourcesOf(call), call.op, call.scale), launch);
  });
}

template <class Launch>
int LaunchReduce(const ReduceCall& call, const Launch& launch) {
  const bool in_blocks = call.wire.blocks != Wire::Blocks::kNone;
  return in_blocks ? LaunchReduceBlocks(call, launch) : LaunchReduceElements(call, launch);
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_REDUCE_LAUNCHES_H_
