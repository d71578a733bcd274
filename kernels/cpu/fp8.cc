// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/fp8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/fp8.cc"
#include "hwy/foreach_target.h"
// These must come after foreach_target.h, which sets the SIMD target for which they are compiled.
#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

// Codes are derived from fp16 patterns. E5M2 codes are the upper bytes of fp16 patterns. E4M3 codes have one exponent
// bit less than fp16. With a zero inserted for this bit, an E4M3 code becomes the upper bits of the fp16 pattern of a
// number that is 2^8 times smaller, even if it is subnormal. So a number is first rounded to the format's grid in fp32,
// with two additions, and then converted exactly to fp16.

// The decoded float32 values of a block.
struct Fp8Values {
  alignas(64) float at[kFp8BlockElements];
};

// Returns, for each fp16 pattern, whether its magnitude is above `limit`.
template <class D>  // of uint16_t
HWY_INLINE hn::Mask<D> IsAbove(D d, hn::Vec<D> fp16, int16_t limit) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::BitCast(di, hn::And(fp16, hn::Set(d, uint16_t{0x7FFF})));
  return hn::RebindMask(d, hn::Gt(magnitude, hn::Set(di, limit)));
}

// E4M3 and E5M2 describe the two formats. A format's grid is all fp16 numbers whose patterns are derived from codes; a
// value of the format times kToGrid is on the grid. All functions work on fp16 patterns in 16-bit lanes.
struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr uint32_t kLargestExponent = 8;
  static constexpr float kToGrid = 0x1p-8f;
  static constexpr int kMinExponent = -6 - 8;  // of a normal number, on the grid

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> Fp16FromCode(D d, hn::Vec<hn::Rebind<uint8_t, D>> code) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<int8_t, D> di8;
    // Sign extension of a negative code also sets the missing exponent bit, which the mask clears.
    const auto extended = hn::BitCast(d, hn::PromoteTo(di, hn::BitCast(di8, code)));
    const auto fp16 = hn::And(hn::ShiftLeft<7>(extended), hn::Set(d, uint16_t{0xBFFF}));
    const auto all_ones = hn::Set(d, uint16_t{0x3F80});
    const auto is_nan = hn::Eq(hn::And(fp16, all_ones), all_ones);
    return hn::IfThenElse(is_nan, hn::Set(d, uint16_t{0x7E00}), fp16);
  }

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> CodeFromFp16(D d, hn::Vec<D> fp16) {
    const auto magnitude = hn::And(hn::ShiftRight<7>(fp16), hn::Set(d, uint16_t{0x7F}));
    return hn::Or(magnitude, hn::And(hn::ShiftRight<8>(fp16), hn::Set(d, uint16_t{0x80})));
  }

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> CodeFromAnyFp16(D d, hn::Vec<D> fp16) {
    return hn::IfThenElse(IsAbove(d, fp16, 0x3F00), hn::Set(d, uint16_t{0x7F}), CodeFromFp16(d, fp16));
  }
};

struct E5M2 {
  static constexpr int kMantissaBits = 2;
  static constexpr uint32_t kLargestExponent = 15;
  static constexpr float kToGrid = 1.0f;
  static constexpr int kMinExponent = -14;

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> Fp16FromCode(D d, hn::Vec<hn::Rebind<uint8_t, D>> code) {
    return hn::ShiftLeft<8>(hn::PromoteTo(d, code));
  }

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> CodeFromFp16(D, hn::Vec<D> fp16) {
    return hn::ShiftRight<8>(fp16);
  }

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> CodeFromAnyFp16(D d, hn::Vec<D> fp16) {
    return hn::IfThenElse(IsAbove(d, fp16, 0x7C00), hn::Set(d, uint16_t{0x7E}), CodeFromFp16(d, fp16));
  }
};

// Rounds `value` to the grid of F. Leaves infinity and NaN unchanged.
template <class F, class D>  // of float
HWY_INLINE hn::Vec<D> RoundToGrid(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  // `large` is 1.5 * 2^(23 - mantissa bits) times the power of two of `value`, or of the format's smallest exponent if
  // `value` is subnormal. Its last bit in fp32 has the weight of the format's last bit at that exponent.
  const auto exponent = hn::And(hn::BitCast(di, value), hn::Set(di, 0x7F800000));
  const auto smallest = hn::Set(di, (127 + F::kMinExponent) << 23);
  const auto factor = hn::Set(di, ((23 - F::kMantissaBits) << 23) + (1 << 22));
  const auto large = hn::BitCast(d, hn::Add(hn::Max(exponent, smallest), factor));
  const auto rounded = hn::Sub(hn::Add(value, large), large);
  const auto sign = hn::And(hn::BitCast(du, value), hn::Set(du, 0x80000000u));  // zero has lost its sign
  return hn::BitCast(d, hn::Or(hn::BitCast(du, rounded), sign));
}

// Selects the numbers of a block that LargestMagnitude() considers.
struct AllNumbers {
  template <class D>  // of int32_t
  static HWY_INLINE hn::Vec<D> Counted(D, hn::Vec<D> magnitude) {
    return magnitude;
  }
};

struct FiniteNumbers {
  template <class D>  // of int32_t
  static HWY_INLINE hn::Vec<D> Counted(D d, hn::Vec<D> magnitude) {
    return hn::IfThenElseZero(hn::Lt(magnitude, hn::Set(d, 0x7F800000)), magnitude);
  }
};

// Returns the bits of the largest magnitude, comparing magnitudes by their bits as integers.
template <class Numbers>
HWY_INLINE uint32_t LargestMagnitude(const Fp8Values& values) {
  const hn::ScalableTag<int32_t> d;
  const hn::ScalableTag<float> df;
  auto largest = hn::Zero(d);
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    const auto magnitude = hn::BitCast(d, hn::Abs(hn::Load(df, values.at + i)));
    largest = hn::Max(largest, Numbers::Counted(d, magnitude));
  }
  return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest)));
}

// The bits of 1.75 * 2^127, the largest magnitude that can be encoded with the largest scale.
inline constexpr uint32_t kLargestEncodable = 0x7F600000;

// Returns the bits of the scale for a block whose largest finite magnitude is `largest`.
template <class F>
uint32_t ScaleBits(uint32_t largest) {
  if (largest == 0) return 127u << 23;
  // The largest value of each format is 1.75 times a power of two. A larger magnitude needs the next power of two as
  // the scale.
  const uint32_t exponent = (std::min(largest, kLargestEncodable) + 0x1FFFFFu) >> 23;
  return (std::max(exponent, F::kLargestExponent + 1) - F::kLargestExponent) << 23;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The two kinds of blocks. A block without overflow and NaN (EncodableBlock) takes fewer instructions to encode than
// any other block (AnyBlock).
template <class F>
struct EncodableBlock {
  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> Code(D d, hn::Vec<D> fp16) {
    return F::CodeFromFp16(d, fp16);
  }
};

template <class F>
struct AnyBlock {
  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> Code(D d, hn::Vec<D> fp16) {
    return F::CodeFromAnyFp16(d, fp16);
  }
};

template <class F, class Block>
void EncodeBlockOf(const Fp8Values& values, uint32_t largest_finite, uint8_t* block) {
  const uint32_t scale = ScaleBits<F>(largest_finite);
  std::memcpy(block, &scale, sizeof(scale));
  uint8_t* codes = block + sizeof(scale);
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const hn::Rebind<int16_t, decltype(d)> di16;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const auto inverse = hn::Set(d, FloatFromBits((254u << 23) - scale) * F::kToGrid);
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    const auto rounded = RoundToGrid<F>(d, hn::Mul(hn::Load(d, values.at + i), inverse));
    const auto code = Block::Code(d16, Fp16BitsFromFp32(d, rounded));
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(di16, code)), d8, codes + i);
  }
}

template <class F>
void EncodeBlock(const Fp8Values& values, uint8_t* block) {
  const uint32_t largest = LargestMagnitude<AllNumbers>(values);
  if (largest <= kLargestEncodable) return EncodeBlockOf<F, EncodableBlock<F>>(values, largest, block);
  EncodeBlockOf<F, AnyBlock<F>>(values, LargestMagnitude<FiniteNumbers>(values), block);
}

// Decodes the numbers of one block.
template <class F>
class BlockReader {
 public:
  explicit BlockReader(const uint8_t* block) : codes_(block + sizeof(float)) {
    float scale;
    std::memcpy(&scale, block, sizeof(scale));
    factor_ = scale * (1.0f / F::kToGrid);
  }

  // Decodes one vector of numbers, from number `index` of the block on.
  template <class D>  // of float
  HWY_INLINE hn::Vec<D> Load(D d, size_t index) const {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<uint8_t, D> d8;
    const auto on_grid = Fp32FromFp16Bits(d, F::Fp16FromCode(d16, hn::LoadU(d8, codes_ + index)));
    return hn::Mul(on_grid, hn::Set(d, factor_));
  }

 private:
  const uint8_t* codes_;
  float factor_;
};

// Calls `visit` with the struct of the format, E4M3 or E5M2.
template <class Visitor>
void VisitFp8Format(Fp8Format format, Visitor visit) {
  switch (format) {
    case Fp8Format::kE4M3:
      return visit(E4M3());
    case Fp8Format::kE5M2:
      return visit(E5M2());
  }
}

// Loads and scales `count` elements, at most a block, and fills the rest of the block with zeros.
template <class E>
void LoadBlock(const uint8_t* src, size_t count, double factor, Fp8Values& values) {
  uint8_t padded[kFp8BlockElements * sizeof(E)];
  if (count < kFp8BlockElements) {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, src, count * sizeof(E));
    src = padded;
  }
  const FloatsFor<E> d;
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    hn::Store(LoadScaledFloats<E>(d, src + i * sizeof(E), factor), d, values.at + i);
  }
  std::fill(values.at + count, std::end(values.at), 0.0f);  // again: a factor may have given the zeros a sign
}

// Encodes the sum of `values` and `residual`, one block each, and stores the rounding errors in `residual`.
template <class F>
void EncodeWithFeedback(Fp8Values& values, float* residual, uint8_t* block) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    hn::Store(hn::Add(hn::Load(d, values.at + i), hn::LoadU(d, residual + i)), d, values.at + i);
  }
  EncodeBlock<F>(values, block);
  const BlockReader<F> reader(block);
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d)) {
    hn::StoreU(Lost(d, hn::Load(d, values.at + i), reader.Load(d, i)), d, residual + i);
  }
}

// Encodes a block in which only the first `count` values may be nonzero. If `residual` is given, adds its `count`
// values to the block's values, and then stores the new rounding errors there.
template <class F>
void EncodeValues(Fp8Values& values, size_t count, float* residual, uint8_t* block) {
  if (residual == nullptr) return EncodeBlock<F>(values, block);
  if (count == kFp8BlockElements) return EncodeWithFeedback<F>(values, residual, block);
  float padded[kFp8BlockElements] = {};
  std::memcpy(padded, residual, count * sizeof(float));
  EncodeWithFeedback<F>(values, padded, block);
  std::memcpy(residual, padded, count * sizeof(float));
}

template <class F, class E>
void EncodeBlocks(const EncodeFp8Args& args) {
  const auto* src = static_cast<const uint8_t*>(args.src);
  auto* block = static_cast<uint8_t*>(args.blocks);
  for (size_t begin = 0; begin < args.count; begin += kFp8BlockElements, block += kFp8BlockBytes) {
    const size_t count = std::min(args.count - begin, kFp8BlockElements);
    Fp8Values values;
    LoadBlock<E>(src + begin * sizeof(E), count, args.scale.Factor(), values);
    float* residual = args.residual == nullptr ? nullptr : args.residual + begin;
    EncodeValues<F>(values, count, residual, block);
  }
}

template <class F, class E>
void DecodeBlock(const uint8_t* block, uint8_t* dst) {
  const FloatsFor<E> d;
  const BlockReader<F> reader(block);
  for (size_t i = 0; i < kFp8BlockElements; i += hn::Lanes(d))
    StoreFloats<E>(d, reader.Load(d, i), dst + i * sizeof(E));
}

template <class F, class E>
void DecodeBlocks(const uint8_t* block, uint8_t* dst, size_t count) {
  constexpr size_t kDecodedBytes = kFp8BlockElements * sizeof(E);
  for (; count >= kFp8BlockElements; count -= kFp8BlockElements, block += kFp8BlockBytes, dst += kDecodedBytes) {
    DecodeBlock<F, E>(block, dst);
  }
  if (count == 0) return;
  uint8_t last[kDecodedBytes];
  DecodeBlock<F, E>(block, last);
  std::memcpy(dst, last, count * sizeof(E));
}

void EncodeFp8OnTarget(const EncodeFp8Args& args) {
  VisitFp8Format(args.format, [&]<class F>(F) {
    VisitFloatType(args.src_dtype, [&]<class E>(ElementType<E>) { EncodeBlocks<F, E>(args); });
  });
}

void DecodeFp8OnTarget(const uint8_t* blocks, Fp8Format format, uint8_t* dst, DType dst_dtype, size_t count) {
  VisitFp8Format(format, [&]<class F>(F) {
    VisitFloatType(dst_dtype, [&]<class E>(ElementType<E>) { DecodeBlocks<F, E>(blocks, dst, count); });
  });
}

// Reduces the blocks at byte offset `at` of all sources.
template <class F, class Op>
void ReduceBlock(const ReduceFp8Args& args, size_t at, Fp8Values& values) {
  constexpr size_t kVectors = 4;
  const hn::ScalableTag<float> d;
  const void* const* const sources = args.sources.data();
  const auto block = [=](size_t source) { return BlockReader<F>(static_cast<const uint8_t*>(sources[source]) + at); };
  const auto factor = hn::Set(d, static_cast<float>(args.scale.Factor()));
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < kFp8BlockElements; i += kVectors * lanes) {
    hn::Vec<decltype(d)> value[kVectors];
    const BlockReader<F> first = block(0);
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) value[v] = first.Load(d, i + v * lanes);
    for (size_t s = 1; s < args.sources.size(); ++s) {
      const BlockReader<F> next = block(s);
      HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) {
        value[v] = Op::Apply(d, value[v], next.Load(d, i + v * lanes));
      }
    }
    HWY_UNROLL(4) for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(hn::Mul(value[v], factor), d, values.at + i + v * lanes);
    }
  }
}

// Reduces `count` elements of all sources, from the block at byte offset `at` on.
template <class F, class Op>
void ReduceBlocks(const ReduceFp8Args& args, size_t at, size_t count, uint8_t* dst) {
  for (size_t begin = 0; begin < count; begin += kFp8BlockElements, at += kFp8BlockBytes, dst += kFp8BlockBytes) {
    Fp8Values values;
    ReduceBlock<F, Op>(args, at, values);
    const size_t used = std::min(count - begin, kFp8BlockElements);
    std::fill(values.at + used, std::end(values.at), 0.0f);  // a factor may have given unused zeros a sign
    EncodeBlock<F>(values, dst);
  }
}

template <class F>
void ReduceFormat(const ReduceFp8Args& args, size_t at, size_t count, uint8_t* dst) {
  switch (args.op) {
    case ReduceOp::kSum:
      return ReduceBlocks<F, Sum>(args, at, count, dst);
    case ReduceOp::kMin:
      return ReduceBlocks<F, Min>(args, at, count, dst);
    case ReduceOp::kMax:
      return ReduceBlocks<F, Max>(args, at, count, dst);
    case ReduceOp::kProduct:
      return ReduceBlocks<F, Product>(args, at, count, dst);
    default:
      HWY_ABORT("%s is not defined on fp8", Name(args.op));
  }
}

void ReduceFp8OnTarget(const ReduceFp8Args& args, size_t at, size_t count, uint8_t* dst) {
  VisitFp8Format(args.format, [&]<class F>(F) { ReduceFormat<F>(args, at, count, dst); });
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ronda::kernels {

HWY_EXPORT(EncodeFp8OnTarget);
HWY_EXPORT(DecodeFp8OnTarget);
HWY_EXPORT(ReduceFp8OnTarget);

void EncodeFp8(const EncodeFp8Args& args) { HWY_DYNAMIC_DISPATCH(EncodeFp8OnTarget)(args); }

void DecodeFp8(const void* blocks, Fp8Format format, void* dst, DType dst_dtype, size_t count) {
  HWY_DYNAMIC_DISPATCH(DecodeFp8OnTarget)
  (static_cast<const uint8_t*>(blocks), format, static_cast<uint8_t*>(dst), dst_dtype, count);
}

namespace {

// The number of blocks to reduce before decoding them: few enough to stay in the L1 cache together with the sources.
constexpr size_t kStepBlocks = 8;

}  // namespace

void ReduceFp8(const ReduceFp8Args& args) {
  auto* dst = static_cast<uint8_t*>(args.dst);
  if (!args.dst_dtype.has_value()) return HWY_DYNAMIC_DISPATCH(ReduceFp8OnTarget)(args, 0, args.count, dst);
  uint8_t blocks[kStepBlocks * kFp8BlockBytes];
  for (size_t begin = 0, at = 0; begin < args.count; begin += kStepBlocks * kFp8BlockElements, at += sizeof(blocks)) {
    const size_t count = std::min(args.count - begin, kStepBlocks * kFp8BlockElements);
    HWY_DYNAMIC_DISPATCH(ReduceFp8OnTarget)(args, at, count, blocks);
    DecodeFp8(blocks, args.format, dst + begin * SizeOf(*args.dst_dtype), *args.dst_dtype, count);
  }
}

}  // namespace ronda::kernels
#endif  // HWY_ONCE
