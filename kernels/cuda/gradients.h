// SPDX-License-Identifier: Apache-2.0

// Kernels on gradients for optimizers: they detect overflow, add weighted gradients, and compute Adasum. map_launches.h
// describes `launch`.
#ifndef RONDA_KERNELS_CUDA_GRADIENTS_H_
#define RONDA_KERNELS_CUDA_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/gradients.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

struct FindSegment {
  const void* data;
  uint64_t count;
  uint8_t* found;
};

// Sets *found, which is 0 before the launch, to 1 if the bits of an element's magnitude, as an integer, are at least
// those of infinity.
template <class Bits>
class FindNonFiniteBody {
 public:
  static constexpr uint32_t kTileElements = TileElements(sizeof(Bits));

  FindNonFiniteBody(const Tiling<FindSegment>& tiles, Bits infinity) : infinity_(infinity), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kTileElements);
    }
  }

 private:
  static constexpr int kVector = kAccessBytes / sizeof(Bits);

  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const FindSegment& segment, uint64_t first) const {
    const uint64_t left = segment.count - first;
    const uint32_t count = left < kTileElements ? static_cast<uint32_t>(left) : kTileElements;
    const uint8_t* data = At<Bits>(segment.data, first);
    const uint32_t single = IsAlignedFor<Bits, kVector>(data) ? count / kVector * kVector : 0;
    Range<kVector>(block, data, 0, single, segment.found);
    Range<1>(block, data, single, count, segment.found);
  }

  template <int kCount, class Block>
  RONDA_HOST_DEVICE void Range(const Block& block, const uint8_t* data, uint32_t begin, uint32_t end,
                               uint8_t* found) const {
    const auto load = [&](uint32_t at) { return Load<Bits, kCount>(At<Bits>(static_cast<const void*>(data), at)); };
    const auto look = [&](uint32_t, const Vector<Bits, kCount>& bits) {
      bool any = false;
      for (int i = 0; i < kCount; ++i) any |= (bits.at[i] & std::numeric_limits<Bits>::max() >> 1) >= infinity_;
      if (any) *found = 1;  // all writers write the same value
    };
    ForBatches<kCount>(block, begin, end, load, look);
  }

  const Bits infinity_;
  const Tiling<FindSegment> tiles_;
};

struct PairSegment {
  const void* a;
  const void* b;
  void* dst;  // may be a or b
  uint64_t count;
  const double* dots;  // of the pair
};

// Returns the call's factors.
struct GivenFactors {
  RONDA_HOST_DEVICE AdasumWeights operator()(const double* /*dots*/) const { return factors; }
  AdasumWeights factors;
};

// Computes Adasum's weights from the pair's dot products.
struct AdasumFactors {
  RONDA_HOST_DEVICE AdasumWeights operator()(const double* dots) const {
    return WeightsOf({.ab = dots[0], .aa = dots[1], .bb = dots[2]});
  }
};

// Computes dst = factors.a * a + factors.b * b, in float64.
template <class E, class Factors>
class AddBody {
 public:
  static constexpr uint32_t kTileElements = TileElements(sizeof(E));
  static constexpr int kBlocksAtOnce = kBlocksAtOnceIfLarge;

  AddBody(const Tiling<PairSegment>& tiles, const Factors& factors) : factors_(factors), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kTileElements);
    }
  }

 private:
  static constexpr int kVector = kAccessBytes / sizeof(E);

  template <int kCount>
  struct Operands {
    Vector<E, kCount> a;
    Vector<E, kCount> b;
  };

  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const PairSegment& segment, uint64_t first) const {
    const uint64_t left = segment.count - first;
    const uint32_t count = left < kTileElements ? static_cast<uint32_t>(left) : kTileElements;
    const PairSegment tile = {At<E>(segment.a, first), At<E>(segment.b, first), At<E>(segment.dst, first), count,
                              segment.dots};
    const bool vectors =
        IsAlignedFor<E, kVector>(tile.a) && IsAlignedFor<E, kVector>(tile.b) && IsAlignedFor<E, kVector>(tile.dst);
    const uint32_t single = vectors ? count / kVector * kVector : 0;
    const AdasumWeights factors = factors_(segment.dots);
    Range<kVector>(block, tile, factors, 0, single);
    Range<1>(block, tile, factors, single, count);
  }

  template <int kCount, class Block>
  RONDA_HOST_DEVICE void Range(const Block& block, const PairSegment& tile, const AdasumWeights& factors,
                               uint32_t begin, uint32_t end) const {
    const auto load = [&](uint32_t at) {
      return Operands<kCount>{Load<E, kCount>(At<E>(tile.a, at)), Load<E, kCount>(At<E>(tile.b, at))};
    };
    const auto store = [&](uint32_t at, const Operands<kCount>& in) {
      Vector<E, kCount> out;
      for (int i = 0; i < kCount; ++i) {
        out.at[i] = RoundTo<E>(factors.a * Widen<double>(in.a.at[i]) + factors.b * Widen<double>(in.b.at[i]));
      }
      Store(out, At<E>(tile.dst, at));
    };
    ForBatches<kCount, kAccessesInFlight / 2>(block, begin, end, load, store);
  }

  const Factors factors_;
  const Tiling<PairSegment> tiles_;
};

// One block computes the dot products of each part of a pair, and a second launch adds the parts. So the order of the
// additions is fixed, and no block waits for another.
inline constexpr uint64_t kDotsPartElements = 4096;  // at least

RONDA_HOST_DEVICE inline uint64_t DotsParts(uint64_t count) {
  const uint64_t parts = TileCount(count, kDotsPartElements);
  return parts < kDotsMaxParts ? parts : kDotsMaxParts;
}

// Returns the number of elements in each part except the last.
RONDA_HOST_DEVICE inline uint64_t DotsPartLength(uint64_t count) {
  const uint64_t parts = DotsParts(count);
  return parts == 0 ? 0 : TileCount(TileCount(count, parts), kThreads) * kThreads;
}

struct DotsSegment {
  const void* a;
  const void* b;
  uint64_t count;
  double* parts;  // three for each part
  double* dots;
};

struct ThreadDots {
  double at[3];
};

// Adds the three dot products of all threads of the block, and stores the three sums.
template <class Block, class Dots>
RONDA_HOST_DEVICE inline void StoreTotals(const Block& block, const Dots& dots, double* to) {
  for (int i = 0; i < 3; ++i) {
    const double total = block.Total([&](int thread) { return dots[thread].at[i]; });
    block.ForEachThread([&](int thread) {
      if (thread == 0) to[i] = total;
    });
  }
}

template <class E>
class DotsBody {
 public:
  explicit DotsBody(const Tiling<DotsSegment>& tiles) : tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      const DotsSegment& segment = tiles_.segment(position.segment);
      const uint64_t length = DotsPartLength(segment.count);
      const uint64_t begin = position.index * length;
      const uint64_t end = begin + length < segment.count ? begin + length : segment.count;
      typename Block::template PerThread<ThreadDots> dots;
      block.ForEachThread([&](int thread) { dots[thread] = Sum(segment, begin + thread, end); });
      StoreTotals(block, dots, segment.parts + 3 * position.index);
    }
  }

 private:
  // Returns the dot products of every kThreads-th element.
  RONDA_HOST_DEVICE static ThreadDots Sum(const DotsSegment& segment, uint64_t begin, uint64_t end) {
    ThreadDots dots = {};
    for (uint64_t at = begin; at < end; at += kThreads) {
      const double a = Load<E, 1>(At<E>(segment.a, at)).at[0];
      const double b = Load<E, 1>(At<E>(segment.b, at)).at[0];
      dots.at[0] += a * b;
      dots.at[1] += a * a;
      dots.at[2] += b * b;
    }
    return dots;
  }

  const Tiling<DotsSegment> tiles_;
};

// Adds the parts of each pair. Here, a tile is a pair.
class AddPartsBody {
 public:
  explicit AddPartsBody(const Tiling<DotsSegment>& tiles) : tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    static_assert(kDotsMaxParts <= kThreads);
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const DotsSegment& segment = tiles_.segment(tiles_.Find(tile).segment);
      const auto parts = static_cast<int>(DotsParts(segment.count));
      typename Block::template PerThread<ThreadDots> dots;
      block.ForEachThread([&](int thread) {
        dots[thread] = {};
        if (thread >= parts) return;
        for (int i = 0; i < 3; ++i) dots[thread].at[i] = segment.parts[3 * thread + i];
      });
      StoreTotals(block, dots, segment.dots);
    }
  }

 private:
  const Tiling<DotsSegment> tiles_;
};

// The launches.

// REQUIRES: all flags in `call.found` are 0.
template <class Launch>
int LaunchFindNonFinite(const NonFiniteCall& call, const Launch& launch) {
  if (!IsFloatingPoint(call.dtype)) return kInvalidCall;
  const size_t bytes = SizeOf(call.dtype);
  const auto fill_in = [&](int index, FindSegment& segment) {
    segment = {call.tensors[index].data, call.tensors[index].count, call.found + index};
    return TileCount(segment.count, TileElements(bytes));
  };
  return VisitBits(bytes, [&]<class Bits>(ElementType<Bits>) {
    if constexpr (sizeof(Bits) == 1) {
      return kInvalidCall;
    } else {
      return ForTilings<FindSegment>(call.tensor_count, fill_in, [&](const Tiling<FindSegment>& tiling) {
        using Body = FindNonFiniteBody<Bits>;
        return launch(Body(tiling, static_cast<Bits>(InfoOf(call.dtype).infinity)), tiling.tiles());
      });
    }
  });
}

template <class E, class Factors, class Describe, class Launch>
int LaunchAdd(int count, const Factors& factors, const Describe& describe, const Launch& launch) {
  const auto fill_in = [&](int index, PairSegment& segment) {
    segment = describe(index);
    return TileCount(segment.count, TileElements(sizeof(E)));
  };
  return ForTilings<PairSegment>(count, fill_in, [&](const Tiling<PairSegment>& tiling) {
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
  const auto fill_in_parts = [&](int index, DotsSegment& segment) {
    segment = segment_of(index);
    return DotsParts(segment.count);
  };
  const auto fill_in_pairs = [&](int index, DotsSegment& segment) {
    segment = segment_of(index);
    return uint64_t{1};
  };
  const int error = VisitWideFloat(call.dtype, [&]<class E>(ElementType<E>) {
    return ForTilings<DotsSegment>(call.pair_count, fill_in_parts, [&](const Tiling<DotsSegment>& tiling) {
      return launch(DotsBody<E>(tiling), tiling.tiles());
    });
  });
  if (error != 0) return error;
  return ForTilings<DotsSegment>(call.pair_count, fill_in_pairs, [&](const Tiling<DotsSegment>& tiling) {
    return launch(AddPartsBody(tiling), tiling.tiles());
  });
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

#endif  // RONDA_KERNELS_CUDA_GRADIENTS_H_
