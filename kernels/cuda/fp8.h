// Kernels that pack and unpack the 8-bit wire formats (kernels/dtype.h), whose blocks a warp encodes and decodes: the
// bodies. map_launches.h launches them.
//
// Both formats are prefixes of fp16. E5M2 codes are the upper bytes of fp16 patterns. E4M3 codes, with a bit for the
// missing one of the exponent, are the upper bytes of the patterns of numbers 2^8 times smaller, subnormal numbers
// included. So a number is rounded to the format's grid in fp32, which takes two additions, and the rest is an exact
// conversion to fp16.
#ifndef RONDA_KERNELS_CUDA_FP8_H_
#define RONDA_KERNELS_CUDA_FP8_H_

#include <cstdint>

#include "kernels/cuda/block.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/map.h"
#include "kernels/dtype.h"

namespace ronda::kernels::cuda {

// The differences between the two formats. The grid of a format are the fp16 numbers with a code's bits; kToGrid times
// a value of the format is on it.
struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr uint32_t kLargestExponent = 8;
  static constexpr float kToGrid = 1.0f / 256;
  static constexpr int kMinExponent = -6 - 8;  // of a normal number, on the grid

  RONDA_HOST_DEVICE static Float16 Fp16FromCode(uint8_t code) {
    const uint32_t fp16 = (code & 0x80u) << 8 | (code & 0x7Fu) << 7;
    const bool is_nan = (code & 0x7Fu) == 0x7Fu;
    return {static_cast<uint16_t>(is_nan ? 0x7E00u : fp16)};
  }

  RONDA_HOST_DEVICE static uint8_t CodeFromFp16(Float16 value) {
    if ((value.bits & 0x7FFFu) > 0x3F00u) return 0x7F;
    return static_cast<uint8_t>((value.bits >> 7 & 0x7Fu) | (value.bits >> 8 & 0x80u));
  }
};

struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr uint32_t kLargestExponent = 15;
  static constexpr float kToGrid = 1.0f;
  static constexpr int kMinExponent = -14;

  RONDA_HOST_DEVICE static Float16 Fp16FromCode(uint8_t code) { return {static_cast<uint16_t>(code << 8)}; }

  RONDA_HOST_DEVICE static uint8_t CodeFromFp16(Float16 value) {
    if ((value.bits & 0x7FFFu) > 0x7C00u) return 0x7E;
    return static_cast<uint8_t>(value.bits >> 8);
  }
};

// `value` rounded to the grid of F; infinity and NaN are kept.
template <class F>
RONDA_HOST_DEVICE inline float RoundToGrid(float value) {
  // A number 1.5 * 2^(23 - mantissa bits) times larger has its last bit where the format's is at this exponent;
  // subnormal numbers share the last bit of the smallest exponent.
  constexpr uint32_t kSmallest = static_cast<uint32_t>(127 + F::kMinExponent) << 23;
  constexpr uint32_t kFactor = (static_cast<uint32_t>(23 - F::kMantissaBits) << 23) + (1u << 22);
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t exponent = bits & kFloatInfinity;
  const auto large = BitCast<float>((exponent > kSmallest ? exponent : kSmallest) + kFactor);
  const float rounded = (value + large) - large;
  return BitCast<float>(BitCast<uint32_t>(rounded) | (bits & 0x80000000u));  // zero has lost its sign
}

// The bits of the scale for a block whose largest finite number has the magnitude with the bits `largest`.
template <class F>
RONDA_HOST_DEVICE inline uint32_t ScaleBits(uint32_t largest) {
  if (largest == 0) return 127u << 23;
  // The largest magnitude that the largest scale serves, 1.75 * 2^127.
  constexpr uint32_t kLargestEncodable = 0x7F600000;
  // The formats' maxima are both 1.75 times a power of two: beyond that, the next power is needed.
  const uint32_t exponent = ((largest < kLargestEncodable ? largest : kLargestEncodable) + 0x1FFFFFu) >> 23;
  constexpr uint32_t kLeast = F::kLargestExponent + 1;
  return ((exponent > kLeast ? exponent : kLeast) - F::kLargestExponent) << 23;
}

template <class F>
RONDA_HOST_DEVICE inline uint8_t Encode(float value, float inverse_scale_on_grid) {
  return F::CodeFromFp16(Fp16FromFp32(RoundToGrid<F>(value * inverse_scale_on_grid)));
}

template <class F>
RONDA_HOST_DEVICE inline float InverseOnGrid(uint32_t scale_bits) {
  return BitCast<float>((254u << 23) - scale_bits) * F::kToGrid;
}

template <class F>
RONDA_HOST_DEVICE inline float Decode(uint8_t code, float scale_from_grid) {
  return Fp32FromFp16(F::Fp16FromCode(code)) * scale_from_grid;
}

template <class F>
RONDA_HOST_DEVICE inline float ScaleFromGrid(const uint8_t* block) {
  return Load<float, 1>(block).at[0] * (1.0f / F::kToGrid);
}

// A lane has two pieces of a block, each of four elements: so a warp's accesses are next to each other.
inline constexpr int kPieces = 2;
inline constexpr int kPiece = 4;
static_assert(kLanes * kPieces * kPiece == kFp8BlockElements);

RONDA_HOST_DEVICE inline int PieceBegin(int lane, int piece) { return (piece * kLanes + lane) * kPiece; }

// A lane's numbers.
struct LaneNumbers {
  float at[kPieces][kPiece];
};

// The bits of the largest finite magnitude, which compare like integers.
RONDA_HOST_DEVICE inline uint32_t LargestFinite(const LaneNumbers& numbers) {
  uint32_t largest = 0;
  for (const auto& piece : numbers.at) {
    for (const float number : piece) {
      const uint32_t magnitude = BitCast<uint32_t>(number) & 0x7FFFFFFFu;
      if (magnitude < kFloatInfinity && magnitude > largest) largest = magnitude;
    }
  }
  return largest;
}

using Codes = Vector<uint8_t, kPiece>;

// A block's codes begin 4 bytes into it, and blocks have 260: on a wire that is aligned, codes can be moved by fours.
RONDA_HOST_DEVICE inline Codes LoadCodes(const uint8_t* block, int begin) {
  const uint8_t* from = block + sizeof(float) + begin;
  if (IsAligned(from, sizeof(Codes))) return Load<uint8_t, kPiece>(from);
  Codes codes;
  for (int i = 0; i < kPiece; ++i) codes.at[i] = from[i];
  return codes;
}

// A lane's codes of a block, and the block's scale.
struct LaneCodes {
  float scale;  // ScaleFromGrid
  Codes at[kPieces];
};

template <class F>
RONDA_HOST_DEVICE inline LaneCodes LoadLaneCodes(const uint8_t* block, int lane) {
  LaneCodes codes = {ScaleFromGrid<F>(block), {}};
  for (int piece = 0; piece < kPieces; ++piece) codes.at[piece] = LoadCodes(block, PieceBegin(lane, piece));
  return codes;
}

RONDA_HOST_DEVICE inline void StoreCodes(const Codes& codes, uint8_t* block, int begin) {
  uint8_t* to = block + sizeof(float) + begin;
  if (IsAligned(to, sizeof(Codes))) return Store(codes, to);
  for (int i = 0; i < kPiece; ++i) to[i] = codes.at[i];
}

// Encodes the numbers of the warp's lanes as the block at `block`, and passes each number with the value of its code to
// feedback(lane, piece, i, number, value).
template <class F, class Warp, class Lanes, class Feedback>
RONDA_HOST_DEVICE inline void EncodeBlock(const Warp& warp, const Lanes& numbers, uint8_t* block,
                                          const Feedback& feedback) {
  const uint32_t largest = warp.Max([&](int lane) { return LargestFinite(numbers[lane]); });
  const uint32_t scale = ScaleBits<F>(largest);
  const float inverse = InverseOnGrid<F>(scale);
  const float from_grid = BitCast<float>(scale) * (1.0f / F::kToGrid);
  warp.ForEachLane([&](int lane) {
    if (lane == 0) Store(Vector<uint32_t, 1>{scale}, block);
    for (int piece = 0; piece < kPieces; ++piece) {
      Codes codes;
      for (int i = 0; i < kPiece; ++i) {
        const float number = numbers[lane].at[piece][i];
        codes.at[i] = Encode<F>(number, inverse);
        feedback(lane, piece, i, number, Decode<F>(codes.at[i], from_grid));
      }
      StoreCodes(codes, block, PieceBegin(lane, piece));
    }
  });
}

// Bodies of kernels that encode tensors as blocks of 8-bit codes, and decode them: pack and unpack.

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
  // `dst` of the segments are blocks.
  EncodeBody(const Tiling<MapSegment>& tiles, const Scale& scale) : factor_(scale.Factor()), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kTileBlocks);
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

// The elements wanted of a tensor that lies on the wire in blocks.
struct DecodeSegment {
  const void* blocks;  // the tensor's first
  void* dst;
  uint64_t skip;   // elements before the first wanted
  uint64_t count;  // elements wanted
};

// The first block that has wanted elements, and the number of such blocks.
RONDA_HOST_DEVICE inline uint64_t FirstBlock(const DecodeSegment& segment) { return segment.skip / kFp8BlockElements; }
RONDA_HOST_DEVICE inline uint64_t BlocksWanted(const DecodeSegment& segment) {
  return segment.count == 0 ? 0 : Fp8BlockCount(segment.skip + segment.count) - FirstBlock(segment);
}

// Blocks of codes whose loads a lane has under way before it decodes the first: it has few bytes of each.
inline constexpr uint32_t kBlocksInFlight = 4;
inline constexpr uint32_t kDecodeTileBlocks = kBlocksInFlight * kWarps;

template <class Format, class E>
class DecodeBody {
 public:
  static constexpr int kBlocksAtOnce = kBlocksAtOnceIfLarge;

  DecodeBody(const Tiling<DecodeSegment>& tiles, const Scale& scale, const Votes& votes)
      : function_(scale), votes_(votes), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    const bool lost = IsLost(block, votes_.ballot);
    for (uint32_t tile = block.index(); !lost && tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kDecodeTileBlocks);
    }
    Decide(block, votes_.decision, lost);
  }

 private:
  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const DecodeSegment& segment, uint64_t first) const {
    const uint64_t blocks = BlocksWanted(segment) - first;
    block.ForEachWarp([&](const auto& warp, uint32_t index) {
      warp.ForEachLane([&](int lane) {
        LaneCodes codes[kBlocksInFlight];
        RONDA_UNROLL
        for (uint32_t i = 0; i < kBlocksInFlight; ++i) {
          const uint64_t at = index + i * kWarps;
          if (at < blocks) codes[i] = LoadLaneCodes<Format>(BlockAt(segment, first + at), lane);
        }
        RONDA_UNROLL
        for (uint32_t i = 0; i < kBlocksInFlight; ++i) {
          const uint64_t at = index + i * kWarps;
          if (at < blocks) Write(codes[i], segment, FirstBlock(segment) + first + at, lane);
        }
      });
    });
  }

  // Block `index` of those that have wanted elements.
  RONDA_HOST_DEVICE static const uint8_t* BlockAt(const DecodeSegment& segment, uint64_t index) {
    return static_cast<const uint8_t*>(segment.blocks) + (FirstBlock(segment) + index) * kFp8BlockBytes;
  }

  RONDA_HOST_DEVICE void Write(const LaneCodes& codes, const DecodeSegment& segment, uint64_t index, int lane) const {
    for (int piece = 0; piece < kPieces; ++piece) {
      Vector<E, kPiece> out;
      for (int i = 0; i < kPiece; ++i) out.at[i] = function_(Decode<Format>(codes.at[piece].at[i], codes.scale));
      StorePiece(out, segment, index * kFp8BlockElements + PieceBegin(lane, piece));
    }
  }

  // Stores the wanted ones of these elements of the tensor, the first of which is element `at`.
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
  const Votes votes_;
  const Tiling<DecodeSegment> tiles_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_FP8_H_
