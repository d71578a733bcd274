// SPDX-License-Identifier: Apache-2.0

// The bodies of kernels that pack and unpack the 8-bit wire formats (kernels/dtype.h), launched by map_launches.h. Each
// warp encodes or decodes one block at a time.
//
// Codes are derived from fp16 patterns. E5M2 codes are the upper bytes of fp16 patterns. E4M3 codes have one exponent
// bit less than fp16. With a zero inserted for this bit, an E4M3 code becomes the upper bits of the fp16 pattern of a
// number that is 2^8 times smaller, even if it is subnormal. So a number is first rounded to the format's grid in fp32,
// with two additions, and then converted exactly to fp16. GPUs of compute capability 8.9 or newer have instructions for
// both directions, which give the same bits for all numbers that a code can represent.
#ifndef RONDA_KERNELS_CUDA_FP8_H_
#define RONDA_KERNELS_CUDA_FP8_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/block.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/map.h"
#include "kernels/dtype.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define RONDA_HAS_FP8_INSTRUCTIONS
#endif

namespace ronda::kernels::cuda {

// E4M3 and E5M2 describe the two formats. A format's grid is all fp16 numbers whose patterns are derived from codes; a
// value of the format times kToGrid is on the grid.
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

#ifdef RONDA_HAS_FP8_INSTRUCTIONS
  // Converts two numbers to codes, with the first in the lower bits. REQUIRES: codes can represent both numbers.
  __device__ static uint16_t TwoCodes(float first, float second) {
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    return codes;
  }

  __device__ static uint32_t TwoFp16(uint16_t codes) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
    return halves;
  }

  // Returns the code of any number, given the code that TwoCodes() returns for it.
  __device__ static uint8_t CodeOfAny(float number, uint8_t code) {
    return fabsf(number) <= 464 ? code : 0x7F;  // half way from the largest number to the next one
  }
#endif
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

#ifdef RONDA_HAS_FP8_INSTRUCTIONS
  __device__ static uint16_t TwoCodes(float first, float second) {
    uint16_t codes;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(second), "f"(first));
    return codes;
  }

  __device__ static uint32_t TwoFp16(uint16_t codes) {
    uint32_t halves;
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(codes));
    return halves;
  }

  __device__ static uint8_t CodeOfAny(float number, uint8_t code) {
    if (fabsf(number) < 61440) return code;
    return isnan(number) ? 0x7E : signbit(number) ? 0xFC : 0x7C;
  }
#endif
};

// Rounds `value` to the grid of F. Leaves infinity and NaN unchanged.
template <class F>
RONDA_HOST_DEVICE inline float RoundToGrid(float value) {
  // `large` is 1.5 * 2^(23 - mantissa bits) times the power of two of `value`, or of the format's smallest exponent if
  // `value` is subnormal. Its last bit in fp32 has the weight of the format's last bit at that exponent.
  constexpr uint32_t kSmallest = static_cast<uint32_t>(127 + F::kMinExponent) << 23;
  constexpr uint32_t kFactor = (static_cast<uint32_t>(23 - F::kMantissaBits) << 23) + (1u << 22);
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t exponent = bits & kFloatInfinity;
  const auto large = BitCast<float>((exponent > kSmallest ? exponent : kSmallest) + kFactor);
  const float rounded = (value + large) - large;
  return BitCast<float>(BitCast<uint32_t>(rounded) | (bits & 0x80000000u));  // restores the sign of zero
}

// The bits of 1.75 * 2^127, the largest magnitude that can be encoded with the largest scale.
inline constexpr uint32_t kLargestEncodable = 0x7F600000;

// Returns the bits of the scale for a block whose largest finite magnitude has the bits `largest`.
template <class F>
RONDA_HOST_DEVICE inline uint32_t ScaleBits(uint32_t largest) {
  if (largest == 0) return 127u << 23;
  // The largest value of each format is 1.75 times a power of two. A larger magnitude needs the next power of two as
  // the scale.
  const uint32_t exponent = ((largest < kLargestEncodable ? largest : kLargestEncodable) + 0x1FFFFFu) >> 23;
  constexpr uint32_t kLeast = F::kLargestExponent + 1;
  return ((exponent > kLeast ? exponent : kLeast) - F::kLargestExponent) << 23;
}

// A lane works on two pieces of a block, of four elements each, so that the lanes of a warp access adjacent addresses.
inline constexpr int kPieces = 2;
inline constexpr int kPiece = 4;
static_assert(kLanes * kPieces * kPiece == kFp8BlockElements);

RONDA_HOST_DEVICE inline int PieceBegin(int lane, int piece) { return (piece * kLanes + lane) * kPiece; }

// A lane's numbers.
struct LaneNumbers {
  float at[kPieces][kPiece];
};

// Returns the bits of the largest magnitude below `limit`, comparing magnitudes by their bits as integers.
RONDA_HOST_DEVICE inline uint32_t LargestBelow(uint32_t limit, const LaneNumbers& numbers) {
  uint32_t largest = 0;
  for (const auto& piece : numbers.at) {
    for (const float number : piece) {
      const uint32_t magnitude = BitCast<uint32_t>(number) & 0x7FFFFFFFu;
      if (magnitude < limit && magnitude > largest) largest = magnitude;
    }
  }
  return largest;
}

using Codes = Vector<uint8_t, kPiece>;

// Multiplies numbers by the inverse of a scale, and returns the codes of the products. `are_held` is true if codes can
// represent all of them.
template <class F>
RONDA_HOST_DEVICE inline Codes EncodePiece(const float (&numbers)[kPiece], float inverse, bool are_held) {
#ifdef RONDA_HAS_FP8_INSTRUCTIONS
  float quotients[kPiece];
  for (int i = 0; i < kPiece; ++i) quotients[i] = numbers[i] * inverse;
  const uint32_t low = F::TwoCodes(quotients[0], quotients[1]);
  const uint32_t high = F::TwoCodes(quotients[2], quotients[3]);
  auto codes = BitCast<Codes>(low | high << 16);
  if (are_held) return codes;
  for (int i = 0; i < kPiece; ++i) codes.at[i] = F::CodeOfAny(quotients[i], codes.at[i]);
#else
  static_cast<void>(are_held);
  const float on_grid = inverse * F::kToGrid;
  Codes codes;
  for (int i = 0; i < kPiece; ++i) {
    codes.at[i] = F::CodeFromFp16(Fp16FromFp32(RoundToGrid<F>(numbers[i] * on_grid)));
  }
#endif
  return codes;
}

template <class F>
RONDA_HOST_DEVICE inline Vector<float, kPiece> DecodePiece(const Codes& codes, float scale) {
  Vector<float, kPiece> numbers;
#ifdef RONDA_HAS_FP8_INSTRUCTIONS
  const auto bits = BitCast<uint32_t>(codes);
  const uint32_t halves[] = {F::TwoFp16(static_cast<uint16_t>(bits)), F::TwoFp16(static_cast<uint16_t>(bits >> 16))};
  for (int i = 0; i < kPiece; ++i) {
    numbers.at[i] = Fp32FromFp16({static_cast<uint16_t>(halves[i / 2] >> i % 2 * 16)}) * scale;
  }
#else
  const float from_grid = scale * (1.0f / F::kToGrid);
  for (int i = 0; i < kPiece; ++i) numbers.at[i] = Fp32FromFp16(F::Fp16FromCode(codes.at[i])) * from_grid;
#endif
  return numbers;
}

// On the wire, a block is its scale followed by its codes. A block has 260 bytes, so codes can be moved four at a time
// if the wire is aligned.

// A lane's codes of a block, and the block's scale.
struct LaneCodes {
  float scale;
  Codes at[kPieces];
};

// kAligned says whether the address `block` is a multiple of four. It is a template parameter because the compiler
// makes a thread wait for each conditional load before the next.
template <bool kAligned>
RONDA_HOST_DEVICE inline LaneCodes LoadLaneCodes(const uint8_t* block, int lane) {
  LaneCodes codes;
  codes.scale = kAligned ? *reinterpret_cast<const float*>(block) : LoadBytes<float>(block);
  for (int piece = 0; piece < kPieces; ++piece) {
    const uint8_t* from = block + sizeof(float) + PieceBegin(lane, piece);
    codes.at[piece] = kAligned ? Load<uint8_t, kPiece>(from) : LoadBytes<Codes>(from);
  }
  return codes;
}

RONDA_HOST_DEVICE inline void StoreCodes(const Codes& codes, uint8_t* block, int begin) {
  uint8_t* to = block + sizeof(float) + begin;
  if (IsAligned(block, sizeof(Codes))) return Store(codes, to);
  StoreBytes(codes, to);
}

// Encodes the numbers of the warp's lanes as one block at `block`. Calls encoded(lane, piece, codes, scale) for each
// piece of each lane.
template <class F, class Warp, class Lanes, class Encoded>
RONDA_HOST_DEVICE inline void EncodeBlock(const Warp& warp, const Lanes& numbers, uint8_t* block,
                                          const Encoded& encoded) {
  uint32_t largest = warp.Max([&](int lane) { return LargestBelow(0xFFFFFFFFu, numbers[lane]); });
  const bool are_held = largest <= kLargestEncodable;
  if (largest >= kFloatInfinity)
    largest = warp.Max([&](int lane) { return LargestBelow(kFloatInfinity, numbers[lane]); });
  const uint32_t scale = ScaleBits<F>(largest);
  const auto inverse = BitCast<float>((254u << 23) - scale);
  warp.ForEachLane([&](int lane) {
    if (lane == 0) Store(Vector<uint32_t, 1>{scale}, block);
    for (int piece = 0; piece < kPieces; ++piece) {
      const Codes codes = EncodePiece<F>(numbers[lane].at[piece], inverse, are_held);
      encoded(lane, piece, codes, BitCast<float>(scale));
      StoreCodes(codes, block, PieceBegin(lane, piece));
    }
  });
}

// Bodies of the kernels that pack tensors into blocks of 8-bit codes, and unpack them.

// A tile is four blocks of codes per warp.
inline constexpr uint32_t kTileBlocks = 4 * kWarps;

RONDA_HOST_DEVICE inline uint64_t Least(uint64_t a, uint64_t b) { return a < b ? a : b; }

template <class Format, class E>
class EncodeBody {
 public:
  static constexpr int kBlocksAtOnce = kBlocksAtOnceIfLarge;

  // `dst` of each segment points to blocks.
  EncodeBody(const Tiling<MapSegment>& tiles, const Scale& scale)
      : factor_(static_cast<Lane>(scale.Factor())), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      const MapSegment& segment = tiles_.segment(position.segment);
      const uint64_t first = uint64_t{position.index} * kTileBlocks;
      segment.residual == nullptr ? Tile<false>(block, segment, first) : Tile<true>(block, segment, first);
    }
  }

 private:
  using Lane = LaneOf<E, E>;

  // A lane's elements of a block, and its residuals.
  struct Elements {
    Vector<E, kPiece> at[kPieces];
    Vector<float, kPiece> residual[kPieces];
  };

  // The number of blocks that a warp loads before it encodes the first one. Each lane loads at most 128 bytes of them,
  // for which it has registers.
  template <bool kFeedback>
  static constexpr uint32_t kAhead =
      std::max<uint32_t>(1, std::min<uint32_t>(4, 16 / (sizeof(E) + (kFeedback ? sizeof(float) : 0))));

  template <bool kFeedback, class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const MapSegment& segment, uint64_t first) const {
    const uint64_t end = Least(Fp8BlockCount(segment.count), first + kTileBlocks);
    // The blocks before `whole_end` are complete, so lanes can load them in pieces.
    const bool is_aligned =
        IsAlignedFor<E, kPiece>(segment.src) && (!kFeedback || IsAlignedFor<float, kPiece>(segment.residual));
    const uint64_t whole_end = is_aligned ? Least(segment.count / kFp8BlockElements, end) : 0;
    block.ForEachWarp([&](const auto& warp, uint32_t index) {
      uint64_t at = first + index;
      for (; at + (kAhead<kFeedback> - 1) * kWarps < whole_end; at += kAhead<kFeedback> * kWarps) {
        WholeBlocks<kFeedback>(warp, segment, at);
      }
      for (; at < end; at += kWarps) OneBlock<kFeedback>(warp, segment, at);
    });
  }

  // Blocks `index`, index + kWarps, ...
  template <bool kFeedback, class Warp>
  RONDA_HOST_DEVICE void WholeBlocks(const Warp& warp, const MapSegment& segment, uint64_t index) const {
    typename Warp::template PerLane<Elements> loaded[kAhead<kFeedback>];
    RONDA_UNROLL
    for (uint32_t i = 0; i < kAhead<kFeedback>; ++i) {
      const uint64_t begin = (index + i * kWarps) * kFp8BlockElements;
      warp.ForEachLane([&](int lane) {
        for (int piece = 0; piece < kPieces; ++piece) {
          const uint64_t at = begin + PieceBegin(lane, piece);
          loaded[i][lane].at[piece] = Load<E, kPiece>(At<E>(segment.src, at));
          if constexpr (kFeedback) loaded[i][lane].residual[piece] = Load<float, kPiece>(segment.residual + at);
        }
      });
    }
    RONDA_UNROLL
    for (uint32_t i = 0; i < kAhead<kFeedback>; ++i) {
      typename Warp::template PerLane<LaneNumbers> numbers;
      warp.ForEachLane([&](int lane) {
        for (int piece = 0; piece < kPieces; ++piece) {
          for (int at = 0; at < kPiece; ++at) {
            numbers[lane].at[piece][at] = Number<kFeedback>(loaded[i][lane], piece, at);
          }
        }
      });
      Encode<kFeedback>(warp, numbers, segment, index + i * kWarps, [&](int lane, int piece, const auto& lost) {
        const uint64_t begin = (index + i * kWarps) * kFp8BlockElements + PieceBegin(lane, piece);
        Store(lost, segment.residual + begin);
      });
    }
  }

  // Encodes block `index`, loading it element by element, because it may be shorter and have any address. Pads a
  // shorter block with zeros.
  template <bool kFeedback, class Warp>
  RONDA_HOST_DEVICE void OneBlock(const Warp& warp, const MapSegment& segment, uint64_t index) const {
    const auto for_each = [&](int lane, int piece, const auto& step) {
      const uint64_t begin = index * kFp8BlockElements + PieceBegin(lane, piece);
      for (int i = 0; i < kPiece; ++i) {
        if (begin + i < segment.count) step(i, begin + i);
      }
    };
    typename Warp::template PerLane<LaneNumbers> numbers;
    warp.ForEachLane([&](int lane) {
      numbers[lane] = {};
      for (int piece = 0; piece < kPieces; ++piece) {
        for_each(lane, piece, [&](int i, uint64_t at) {
          Elements loaded;
          loaded.at[piece].at[i] = Load<E, 1>(At<E>(segment.src, at)).at[0];
          if constexpr (kFeedback) loaded.residual[piece].at[i] = Load<float, 1>(segment.residual + at).at[0];
          numbers[lane].at[piece][i] = Number<kFeedback>(loaded, piece, i);
        });
      }
    });
    Encode<kFeedback>(warp, numbers, segment, index, [&](int lane, int piece, const auto& lost) {
      for_each(lane, piece, [&](int i, uint64_t at) { Store(Vector<float, 1>{lost.at[i]}, segment.residual + at); });
    });
  }

  // Returns the value to send for an element.
  template <bool kFeedback>
  RONDA_HOST_DEVICE float Number(const Elements& elements, int piece, int i) const {
    const auto number = static_cast<float>(Widen<Lane>(elements.at[piece].at[i]) * factor_);
    if constexpr (kFeedback) return number + elements.residual[piece].at[i];
    return number;
  }

  // Encodes block `index`. With feedback, calls store(lane, piece, residuals).
  template <bool kFeedback, class Warp, class Numbers, class StoreLost>
  RONDA_HOST_DEVICE void Encode(const Warp& warp, const Numbers& numbers, const MapSegment& segment, uint64_t index,
                                const StoreLost& store) const {
    uint8_t* block = static_cast<uint8_t*>(segment.dst) + index * kFp8BlockBytes;
    EncodeBlock<Format>(warp, numbers, block, [&](int lane, int piece, const Codes& codes, float scale) {
      if constexpr (kFeedback) {
        const Vector<float, kPiece> sent = DecodePiece<Format>(codes, scale);
        Vector<float, kPiece> lost;
        for (int i = 0; i < kPiece; ++i) lost.at[i] = Lost(numbers[lane].at[piece][i], sent.at[i]);
        store(lane, piece, lost);
      }
    });
  }

  const Lane factor_;
  const Tiling<MapSegment> tiles_;
};

// The requested elements of a tensor that is on the wire as blocks.
struct DecodeSegment {
  const void* blocks;  // the tensor's first block
  void* dst;
  uint64_t skip;   // elements before the first requested one
  uint64_t count;  // requested elements
};

// Return the first block with requested elements, and the number of such blocks.
RONDA_HOST_DEVICE inline uint64_t FirstBlock(const DecodeSegment& segment) { return segment.skip / kFp8BlockElements; }
RONDA_HOST_DEVICE inline uint64_t BlocksWanted(const DecodeSegment& segment) {
  return segment.count == 0 ? 0 : Fp8BlockCount(segment.skip + segment.count) - FirstBlock(segment);
}

// The number of blocks of codes that a lane loads before it decodes the first one. It loads only a few bytes of each.
inline constexpr uint32_t kBlocksInFlight = 4;
static_assert(kTileBlocks == kBlocksInFlight * kWarps);

template <class Format, class E>
class DecodeBody {
 public:
  static constexpr int kBlocksAtOnce = kBlocksAtOnceIfLarge;

  DecodeBody(const Tiling<DecodeSegment>& tiles, const Scale& scale) : function_(scale), tiles_(tiles) {}

  template <class Block>
  RONDA_HOST_DEVICE void operator()(const Block& block) const {
    for (uint32_t tile = block.index(); tile < tiles_.tiles(); tile += block.grid()) {
      const auto position = tiles_.Find(tile);
      Tile(block, tiles_.segment(position.segment), uint64_t{position.index} * kTileBlocks);
    }
  }

 private:
  // Decodes a tile of the blocks with requested elements, starting with block `first` of them.
  template <class Block>
  RONDA_HOST_DEVICE void Tile(const Block& block, const DecodeSegment& segment, uint64_t first) const {
    const uint64_t begin = FirstBlock(segment) + first;
    const uint64_t end = Least(FirstBlock(segment) + BlocksWanted(segment), begin + kTileBlocks);
    // All elements of the blocks from `whole_begin` to `whole_end` are requested, so lanes can store them in pieces.
    const uint64_t whole_begin = TileCount(segment.skip, kFp8BlockElements);
    const bool is_aligned = IsAligned(segment.blocks, sizeof(Codes)) &&
                            IsAlignedFor<E, kPiece>(PlaceOf(segment, whole_begin * kFp8BlockElements));
    const uint64_t whole_end = is_aligned ? Least((segment.skip + segment.count) / kFp8BlockElements, end) : 0;
    block.ForEachWarp([&](const auto& warp, uint32_t index) {
      warp.ForEachLane([&](int lane) {
        uint64_t at = begin + index;
        if (at >= whole_begin && at + (kBlocksInFlight - 1) * kWarps < whole_end) {
          WholeBlocks(segment, at, lane);
          return;
        }
        for (; at < end; at += kWarps) OneBlock(segment, at, lane);
      });
    });
  }

  // Return the address of the tensor's block `index`, and the address for its element `index`.
  RONDA_HOST_DEVICE static const uint8_t* BlockAt(const DecodeSegment& segment, uint64_t index) {
    return static_cast<const uint8_t*>(segment.blocks) + index * kFp8BlockBytes;
  }
  RONDA_HOST_DEVICE static uint8_t* PlaceOf(const DecodeSegment& segment, uint64_t index) {
    return At<E>(segment.dst, index - segment.skip);
  }

  // Decodes one warp's blocks of a tile: `index`, index + kWarps, ...
  RONDA_HOST_DEVICE void WholeBlocks(const DecodeSegment& segment, uint64_t index, int lane) const {
    LaneCodes codes[kBlocksInFlight];
    RONDA_UNROLL
    for (uint32_t i = 0; i < kBlocksInFlight; ++i) {
      codes[i] = LoadLaneCodes<true>(BlockAt(segment, index + i * kWarps), lane);
    }
    RONDA_UNROLL
    for (uint32_t i = 0; i < kBlocksInFlight; ++i) {
      const uint64_t begin = (index + i * kWarps) * kFp8BlockElements;
      for (int piece = 0; piece < kPieces; ++piece) {
        Store(Decoded(codes[i], piece), PlaceOf(segment, begin + PieceBegin(lane, piece)));
      }
    }
  }

  // Decodes block `index`, and stores it element by element, because some elements may not be requested, and elements
  // may have any address.
  RONDA_HOST_DEVICE void OneBlock(const DecodeSegment& segment, uint64_t index, int lane) const {
    const LaneCodes codes = LoadLaneCodes<false>(BlockAt(segment, index), lane);
    for (int piece = 0; piece < kPieces; ++piece) {
      const Vector<E, kPiece> out = Decoded(codes, piece);
      const uint64_t begin = index * kFp8BlockElements + PieceBegin(lane, piece);
      for (int i = 0; i < kPiece; ++i) {
        if (begin + i < segment.skip || begin + i >= segment.skip + segment.count) continue;
        Store(Vector<E, 1>{out.at[i]}, PlaceOf(segment, begin + i));
      }
    }
  }

  RONDA_HOST_DEVICE Vector<E, kPiece> Decoded(const LaneCodes& codes, int piece) const {
    const Vector<float, kPiece> numbers = DecodePiece<Format>(codes.at[piece], codes.scale);
    Vector<E, kPiece> out;
    for (int i = 0; i < kPiece; ++i) out.at[i] = function_(numbers.at[i]);
    return out;
  }

  const ScaleFloats<float, E> function_;
  const Tiling<DecodeSegment> tiles_;
};

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_FP8_H_
