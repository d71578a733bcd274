// Which kernels work on gradients; `launch` is as in map_launches.h.
#ifndef RONDA_KERNELS_CUDA_GRADIENT_LAUNCHES_H_
#define RONDA_KERNELS_CUDA_GRADIENT_LAUNCHES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/gradient_bodies.h"
#include "kernels/cuda/tiling.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// The bits of infinity.
constexpr uint64_t InfinityOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x7C00;
    case DType::kBfloat16:
      return 0x7F80;
    case DType::kFloat32:
      return 0x7F800000;
    default:
      return 0x7FF0000000000000;
  }
}

// REQUIRES: `call.found` is zeros.
template <class Launch>
int LaunchFindNonFinite(const NonFiniteCall& call, const Launch& launch) {
  if (!IsFloatingPoint(call.dtype)) return kInvalidCall;
  const size_t bytes = SizeOf(call.dtype);
  const auto place = [&](int index, FindSegment& segment) {
    segment = {call.tensors[index].data, call.tensors[index].count, call.found + index};
    return TileCount(segment.count, TileElements(bytes));
  };
  return VisitBits(bytes, [&]<class Bits>(ElementType<Bits>) {
    if constexpr (sizeof(Bits) == 1) {
      return kInvalidCall;
    } else {
      return ForTilings<FindSegment>(call.tensor_count, place, [&](const Tiling<FindSegment>& tiling) {
        using Body = FindNonFiniteBody<Bits>;
        return launch(Body(tiling, static_cast<Bits>(InfinityOf(call.dtype))), tiling.tiles());
      });
    }
  });
}

template <class E, class Factors, class Describe, class Launch>
int LaunchAdd(int count, const Factors& factors, const Describe& describe, const Launch& launch) {
  const auto place = [&](int index, PairSegment& segment) {
    segment = describe(index);
    return TileCount(segment.count, TileElements(sizeof(E)));
  };
  return ForTilings<PairSegment>(count, place, [&](const Tiling<PairSegment>& tiling) {
    return launch(AddBody<E, Factors>(tiling, factors), tiling.tiles());
  });
}

template <class Launch>
int LaunchAddScaled(const AddScaledCall& call, const Launch& launch) {
  const auto describe = [&](int) { return PairSegment{call.a, call.b, call.dst, call.count, nullptr}; };
  const GivenFactors factors = {{.a = call.a_scale, .b = call.b_scale}};
  return VisitFloat(call.dtype, [&]<class E>(ElementType<E>) { return LaunchAdd<E>(1, factors, describe, launch); });
}

template <class Launch>
int LaunchCombine(const CombineCall& call, const Launch& launch) {
  const auto describe = [&](int index) {
    const Extent& a = call.a[index];
    return PairSegment{a.data, call.b[index].data, const_cast<void*>(a.data), a.count, call.dots + 3 * index};
  };
  return VisitWideFloat(call.dtype, [&]<class E>(ElementType<E>) {
    return LaunchAdd<E>(call.pair_count, AdasumFactors(), describe, launch);
  });
}

template <class Launch>
int LaunchDots(const DotsCall& call, const Launch& launch) {
  const auto segment_of = [&](int index) {
    const int64_t at = 3 * int64_t{index};
    return DotsSegment{call.a[index].data, call.b[index].data, call.a[index].count, call.scratch + at * kDotsMaxParts,
                       call.dots + at};
  };
  const auto place_parts = [&](int index, DotsSegment& segment) {
    segment = segment_of(index);
    return DotsParts(segment.count);
  };
  const auto place_pairs = [&](int index, DotsSegment& segment) {
    segment = segment_of(index);
    return uint64_t{1};
  };
  const int error = VisitWideFloat(call.dtype, [&]<class E>(ElementType<E>) {
    return ForTilings<DotsSegment>(call.pair_count, place_parts, [&](const Tiling<DotsSegment>& tiling) {
      return launch(DotsBody<E>(tiling), tiling.tiles());
    });
  });
  if (error != 0) return error;
  return ForTilings<DotsSegment>(call.pair_count, place_pairs, [&](const Tiling<DotsSegment>& tiling) {
    return launch(AddPartsBody(tiling), tiling.tiles());
  });
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_GRADIENT_LAUNCHES_H_
