// Bodies of kernels that encode tensors as blocks of 8-bit codes, and decode them: pack and unpack.
#ifndef RONDA_KERNELS_CUDA_FP8_MAP_H_
#define RONDA_KERNELS_CUDA_FP8_MAP_H_

#include <cstdint>

#include "kernels/cpu/fp8_format.h"
#include "kernels/cuda/ballot.h"
#include "kernels/cuda/block.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/fp8_codes.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/map.h"
#include "kernels/cuda/tiling.h"

namespace ronda::kernels::cuda {

// Tiles are blocks of codes, two a warp.
inline constexpr uint32_t kTileBlocks = 2 * kWarps;

// Calls step(warp, i) for the blocks i of a tile that has `blocks`.
template <class Block, class Step>
RONDA_HOST_DEVICE inline void ForBlocks(const Block& block, uint64_t blocks, const Step& step) {
  block.ForEachWarp([&](const auto& warp, int index) {
    for (uint32_t i = index; i < kTileBlocks && i < blocks; i += kWarps) step(warp, i);
  });
}

template <class Format, class E>
class EncodeBody {
 public:
  // Of segments whose `dst` are blocks.
  EncodeBody(const Tiling<MapSegment>& tiles, const Scale& scale) : factor_(scale.Factor()), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto place = tiles_.Find(tile);
      Tile(block, tiles_.segment(place.segment), uint64_t{place.index} * kTileBlocks);
    }
  }

 private:
  using Lane = LaneOf<E, E>;

  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const MapSegment& segment, uint64_t first) const {
    ForBlocks(block, Fp8BlockCount(segment.count) - first, [&](const auto& warp, uint32_t i) {
      const uint64_t begin = (first + i) * kFp8BlockElements;
      const uint64_t left = segment.count - begin;
      OneBlock(warp, segment, begin, left < kFp8BlockElements ? static_cast<uint32_t>(left) : kFp8BlockElements);
    });
  }

  template <class Warp>
  RONDA_HOST_DEVICE void OneBlock(const Warp& warp, const MapSegment& segment, uint64_t begin, uint32_t count) const {
    typename Warp::template PerLane<LaneNumbers> numbers;
    const uint8_t* src = At<E>(segment.src, begin);
    float* residual = segment.residual == nullptr ? nullptr : segment.residual + begin;
    warp.ForEachLane([&](int lane) { numbers[lane] = LoadNumbers(src, residual, count, lane); });
    uint8_t* blocks = static_cast<uint8_t*>(segment.dst) + begin / kFp8BlockElements * kFp8BlockBytes;
    EncodeBlock<Format>(warp, numbers, blocks, [&](int lane, int piece, int i, float number, float sent) {
      const uint32_t element = PieceBegin(lane, piece) + i;
      if (residual != nullptr && element < count) Store(Vector<float, 1>{Lost(number, sent)}, residual + element);
    });
  }

  RONDA_HOST_DEVICE LaneNumbers LoadNumbers(const uint8_t* src, const float* residual, uint32_t count, int lane) const {
    const bool vectors = count == kFp8BlockElements && IsAlignedFor<E, kPiece>(src);
    LaneNumbers numbers;
    for (int piece = 0; piece < kPieces; ++piece) {
      const uint32_t begin = PieceBegin(lane, piece);
      const Vector<E, kPiece> elements =
          vectors ? Load<E, kPiece>(At<E>(src, begin)) : LoadSingly(src, begin, begin < count ? count - begin : 0);
      for (int i = 0; i < kPiece; ++i) {
        float& number = numbers.at[piece][i];
        number = 0;  // not the zeros that follow the elements times the factor: it may give them a sign
        if (begin + i >= count) continue;
        number = static_cast<float>(Widen<Lane>(elements.at[i]) * static_cast<Lane>(factor_));
        if (residual != nullptr) number += Load<float, 1>(residual + begin + i).at[0];
      }
    }
    return numbers;
  }

  // The first `count` of four elements; zeros follow.
  RONDA_HOST_DEVICE static Vector<E, kPiece> LoadSingly(const uint8_t* src, uint32_t begin, uint32_t count) {
    Vector<E, kPiece> elements = {};
    for (uint32_t i = 0; i < kPiece && i < count; ++i) elements.at[i] = Load<E, 1>(At<E>(src, begin + i)).at[0];
    return elements;
  }

  const double factor_;
  const Tiling<MapSegment> tiles_;
};

// What is wanted of a tensor that lies on the wire in blocks.
struct DecodeSegment {
  const void* blocks;  // the tensor's first
  void* dst;
  uint64_t skip;   // elements before the first wanted
  uint64_t count;  // elements wanted
};

// How many blocks have elements that are wanted, and the first of them.
RONDA_HOST_DEVICE inline uint64_t FirstBlock(const DecodeSegment& segment) { return segment.skip / kFp8BlockElements; }
RONDA_HOST_DEVICE inline uint64_t BlocksWanted(const DecodeSegment& segment) {
  return segment.count == 0 ? 0 : Fp8BlockCount(segment.skip + segment.count) - FirstBlock(segment);
}

template <class Format, class E>
class DecodeBody {
 public:
  DecodeBody(const Tiling<DecodeSegment>& tiles, const Scale& scale, const Ballot& ballot)
      : function_(scale), ballot_(ballot), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    if (IsLost(block, ballot_)) return;
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto place = tiles_.Find(tile);
      Tile(block, tiles_.segment(place.segment), uint64_t{place.index} * kTileBlocks);
    }
  }

 private:
  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const DecodeSegment& segment, uint64_t first) const {
    ForBlocks(block, BlocksWanted(segment) - first,
              [&](const auto& warp, uint32_t i) { OneBlock(warp, segment, FirstBlock(segment) + first + i); });
  }

  template <class Warp>
  RONDA_HOST_DEVICE void OneBlock(const Warp& warp, const DecodeSegment& segment, uint64_t index) const {
    const uint8_t* block = static_cast<const uint8_t*>(segment.blocks) + index * kFp8BlockBytes;
    const float scale = ScaleFromGrid<Format>(block);
    warp.ForEachLane([&](int lane) {
      for (int piece = 0; piece < kPieces; ++piece) {
        const int begin = PieceBegin(lane, piece);
        const Codes codes = LoadCodes(block, begin);
        Vector<E, kPiece> out;
        for (int i = 0; i < kPiece; ++i) out.at[i] = function_(Decode<Format>(codes.at[i], scale));
        StorePiece(out, segment, index * kFp8BlockElements + begin);
      }
    });
  }

  // Stores what is wanted of elements of the tensor from `at` on.
  RONDA_HOST_DEVICE static void StorePiece(const Vector<E, kPiece>& out, const DecodeSegment& segment, uint64_t at) {
    const uint64_t end = segment.skip + segment.count;
    if (at >= segment.skip && at + kPiece <= end) {
      uint8_t* to = At<E>(segment.dst, at - segment.skip);
      if (IsAlignedFor<E, kPiece>(to)) return Store(out, to);
    }
    for (int i = 0; i < kPiece; ++i) {
      if (at + i < segment.skip || at + i >= end) continue;
      Store(Vector<E, 1>{out.at[i]}, At<E>(segment.dst, at + i - segment.skip));
    }
  }

  const ScaleFloats<float, E> function_;
  const Ballot ballot_;
  const Tiling<DecodeSegment> tiles_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_FP8_MAP_H_
