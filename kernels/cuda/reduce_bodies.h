// Bodies of kernels that reduce wires which lie one after the other: elements, or blocks of 8-bit codes.
#ifndef RONDA_KERNELS_CUDA_REDUCE_BODIES_H_
#define RONDA_KERNELS_CUDA_REDUCE_BODIES_H_

#include <cstdint>

#include "kernels/cpu/fp8_format.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/fp8_codes.h"
#include "kernels/cuda/fp8_map.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/operators.h"
#include "kernels/cuda/tiling.h"

namespace ronda::kernels::cuda {

// What is reduced. The destination may be a source: whoever writes an element has read it from all sources before, and
// nobody else reads it.
struct Sources {
  const uint8_t* first;
  uint64_t stride;
  int count;
  uint8_t* dst;
  uint64_t granules;
};

template <class Arithmetic>
class ReduceBody {
 public:
  using E = typename Arithmetic::Element;
  static constexpr uint32_t kTileElements = TileElements(sizeof(E));

  ReduceBody(const Sources& sources, const Arithmetic& arithmetic) : sources_(sources), arithmetic_(arithmetic) {}

  uint64_t tiles() const { return TileCount(sources_.granules, kTileElements); }

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    const uint64_t tiles = TileCount(sources_.granules, kTileElements);
    for (uint64_t tile = block.index(); tile < tiles; tile += block.grid()) Tile(block, tile * kTileElements);
  }

 private:
  using Accumulator = typename Arithmetic::Accumulator;
  static constexpr int kVector = kAccessBytes / sizeof(E);
  // Sources that are loaded before the first of them is added. Integers narrower than a register take one each, while
  // they are worked on.
  static constexpr int kSourcesAhead = sizeof(Accumulator) < sizeof(float) ? 1 : kAccessesInFlight;

  template <int kCount>
  struct Accumulators {
    Accumulator at[kCount];
  };

  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, uint64_t first) const {
    const uint64_t left = sources_.granules - first;
    const uint32_t count = left < kTileElements ? static_cast<uint32_t>(left) : kTileElements;
    const bool vectors = IsAligned(sources_.first, kAccessBytes) && IsAligned(sources_.dst, kAccessBytes) &&
                         sources_.stride % kAccessBytes == 0;
    const uint32_t single = vectors ? count / kVector * kVector : 0;
    Range<kVector>(block, first, 0, single);
    Range<1>(block, first, single, count);
  }

  template <int kCount, class Block>
  RONDA_HOST_DEVICE void Range(const Block& block, uint64_t first, uint32_t begin, uint32_t end) const {
    const auto reduce = [&](uint32_t at) {
      return Total<kCount>(At<E>(static_cast<const void*>(sources_.first), first + at));
    };
    const auto store = [&](uint32_t at, const Accumulators<kCount>& sum) {
      Vector<E, kCount> out;
      for (int i = 0; i < kCount; ++i) out.at[i] = arithmetic_.Last(sum.at[i]);
      Store(out, At<E>(static_cast<void*>(sources_.dst), first + at));
    };
    // One at a time: the sources are enough to have under way.
    ForBatches<kCount, 1>(block, begin, end, reduce, store);
  }

  // Of the vectors at `from` in the first source, and where the others have theirs.
  template <int kCount>
  RONDA_HOST_DEVICE Accumulators<kCount> Total(const uint8_t* from) const {
    constexpr int kAhead = kCount == 1 ? 1 : kSourcesAhead;
    const Vector<E, kCount> own = Load<E, kCount>(from);
    Accumulators<kCount> sum;
    int source = 1;
    do {
      Vector<E, kCount> next[kAhead] = {};
      for (int i = 0; i < kAhead; ++i) {
        from += sources_.stride;
        if (source + i < sources_.count) next[i] = Load<E, kCount>(from);
      }
      for (int i = 0; i < kCount && source == 1; ++i) sum.at[i] = arithmetic_.First(own.at[i]);
      for (int i = 0; i < kAhead; ++i) {
        if (source + i < sources_.count) Add(next[i], sum);
      }
      source += kAhead;
    } while (source < sources_.count);
    return sum;
  }

  template <int kCount>
  RONDA_HOST_DEVICE void Add(const Vector<E, kCount>& next, Accumulators<kCount>& sum) const {
    arithmetic_.VisitOperator([&](const auto& apply) {
      for (int i = 0; i < kCount; ++i) sum.at[i] = apply(sum.at[i], arithmetic_.First(next.at[i]));
    });
  }

  const Sources sources_;
  const Arithmetic arithmetic_;
};

template <class Format>
class ReduceBlocksBody {
 public:
  ReduceBlocksBody(const Sources& sources, ReduceOp op, const Scale& scale)
      : sources_(sources), op_(op), factor_(static_cast<float>(scale.Factor())) {}

  uint64_t tiles() const { return TileCount(sources_.granules, kTileBlocks); }

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    const uint64_t tiles = TileCount(sources_.granules, kTileBlocks);
    for (uint64_t tile = block.index(); tile < tiles; tile += block.grid()) {
      const uint64_t first = tile * kTileBlocks;
      ForBlocks(block, sources_.granules - first,
                [&](const auto& warp, uint32_t i) { OneBlock(warp, (first + i) * kFp8BlockBytes); });
    }
  }

 private:
  template <class Warp>
  RONDA_HOST_DEVICE void OneBlock(const Warp& warp, uint64_t at) const {
    typename Warp::template PerLane<LaneNumbers> numbers;
    warp.ForEachLane([&](int lane) {
      numbers[lane] = LoadNumbers(sources_.first + at, lane);
      for (int source = 1; source < sources_.count; ++source) {
        Add(LoadNumbers(sources_.first + at + source * sources_.stride, lane), numbers[lane]);
      }
      for (auto& piece : numbers[lane].at) {
        for (float& number : piece) number *= factor_;
      }
    });
    EncodeBlock<Format>(warp, numbers, sources_.dst + at, [](int, int, int, float, float) {});
  }

  RONDA_HOST_DEVICE void Add(const LaneNumbers& next, LaneNumbers& sum) const {
    VisitFloatOperator<float>(op_, [&](const auto& apply) {
      for (int piece = 0; piece < kPieces; ++piece) {
        for (int i = 0; i < kPiece; ++i) sum.at[piece][i] = apply(sum.at[piece][i], next.at[piece][i]);
      }
    });
  }

  RONDA_HOST_DEVICE static LaneNumbers LoadNumbers(const uint8_t* block, int lane) {
    const float scale = ScaleFromGrid<Format>(block);
    LaneNumbers numbers;
    for (int piece = 0; piece < kPieces; ++piece) {
      const Codes codes = LoadCodes(block, PieceBegin(lane, piece));
      for (int i = 0; i < kPiece; ++i) numbers.at[piece][i] = Decode<Format>(codes.at[i], scale);
    }
    return numbers;
  }

  const Sources sources_;
  const ReduceOp op_;
  const float factor_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_REDUCE_BODIES_H_
