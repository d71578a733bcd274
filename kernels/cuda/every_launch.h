// Calls that between them launch every kernel there is; `launch` is as in map_launches.h, but must not run the bodies:
// there is nothing behind the calls' pointers.
#ifndef RONDA_KERNELS_CUDA_EVERY_LAUNCH_H_
#define RONDA_KERNELS_CUDA_EVERY_LAUNCH_H_

#include "kernels/cuda/calls.h"
#include "kernels/cuda/gradient_launches.h"
#include "kernels/cuda/map_launches.h"
#include "kernels/cuda/reduce_launches.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

template <class Visitor>
void ForEveryDType(const Visitor& visit) {
  for (int i = 0; i < kDTypeCount; ++i) visit(static_cast<DType>(i));
}

template <class Visitor>
void ForEveryWire(const Visitor& visit) {
  ForEveryDType([&](DType dtype) { visit(Wire{.dtype = dtype}); });
  visit(Wire{.blocks = Wire::Blocks::kE4M3});
  visit(Wire{.blocks = Wire::Blocks::kE5M2});
}

// What is not supported is refused without a launch.
template <class Launch>
void LaunchEveryMap(const Launch& launch) {
  float lost = 0;
  const PackSegment plain = {.count = 1};
  const PackSegment with_feedback = {.residual = &lost, .count = 1};
  const UnpackSegment unpacked = {.count = 1};
  const VoteCount vote = {.votes = &lost, .count = 1};
  ForEveryDType([&](DType dtype) {
    ForEveryWire([&](const Wire& wire) {
      for (const Scale& scale : {Scale(), Scale{.multiplier = 2}}) {
        for (const PackSegment* segment : {&plain, &with_feedback}) {
          LaunchPack({.segments = segment, .segment_count = 1, .dtype = dtype, .wire = wire, .scale = scale}, launch);
        }
        LaunchUnpack(
            {.segments = &unpacked, .segment_count = 1, .dtype = dtype, .wire = wire, .scale = scale, .vote = vote},
            launch);
      }
    });
  });
}

template <class Launch>
void LaunchEveryReduce(const Launch& launch) {
  ForEveryWire([&](const Wire& wire) { LaunchReduce({.source_count = 1, .wire = wire, .granules = 1}, launch); });
}

template <class Launch>
void LaunchEveryGradient(const Launch& launch) {
  const Extent one = {.count = 1};
  ForEveryDType([&](DType dtype) {
    LaunchFindNonFinite({.tensors = &one, .tensor_count = 1, .dtype = dtype}, launch);
    LaunchAddScaled({.dtype = dtype, .count = 1}, launch);
    LaunchDots({.a = &one, .b = &one, .pair_count = 1, .dtype = dtype}, launch);
    LaunchCombine({.a = &one, .b = &one, .pair_count = 1, .dtype = dtype}, launch);
  });
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_EVERY_LAUNCH_H_
