// Vectors of fp8 codes, and whole blocks of them (fp8.h).
//
// Included once per SIMD target by Highway's foreach_target.h, hence no ordinary include guard.
//
// Both formats are prefixes of fp16: E5M2 codes are the upper bytes of fp16 patterns, and E4M3 codes, with a bit for
// the missing one of the exponent, those of numbers 2^8 times smaller, subnormal numbers included. So a number is
// rounded to the format's grid in fp32, where that is two additions, and the rest is an exact conversion to fp16.
#if defined(RONDA_KERNELS_CPU_FP8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDA_KERNELS_CPU_FP8_INL_H_
#undef RONDA_KERNELS_CPU_FP8_INL_H_
#else
#define RONDA_KERNELS_CPU_FP8_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/elements-inl.h"
#include "kernels/cpu/fp8.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// An unpacked block.
struct Fp8Values {
  alignas(64) float at[kFp8BlockElements];
};

// Whether the magnitudes of fp16 patterns are above `limit`.
template <class D>  // of uint16_t
HWY_INLINE hn::Mask<D> IsAbove(D d, hn::Vec<D> fp16, int16_t limit) {
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::BitCast(di, hn::And(fp16, hn::Set(d, uint16_t{0x7FFF})));
  return hn::RebindMask(d, hn::Gt(magnitude, hn::Set(di, limit)));
}

// What the two formats differ in. `Grid` is the fp16 number with the code's bits, of which kToGrid times the value is
// one; all functions are on fp16 patterns in 16-bit lanes.
struct E4M3 {
  static constexpr int kMantissaBits = 3;
  static constexpr uint32_t kLargestExponent = 8;
  static constexpr float kToGrid = 0x1p-8f;
  static constexpr int kMinExponent = -6 - 8;  // of a normal number, on the grid

  template <class D>  // of uint16_t
  static HWY_INLINE hn::Vec<D> Fp16FromCode(D d, hn::Vec<hn::Rebind<uint8_t, D>> code) {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<int8_t, D> di8;
    // The sign is extended over the bit that the exponent lacks, which is then cleared.
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

// `value` rounded to the grid of F; infinity and NaN stay what they are.
template <class F, class D>  // of float
HWY_INLINE hn::Vec<D> RoundToGrid(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  // A number 1.5 * 2^(23 - mantissa bits) times larger has its last bit where the format's is at this exponent;
  // subnormal numbers share the last bit of the smallest exponent.
  const auto exponent = hn::And(hn::BitCast(di, value), hn::Set(di, 0x7F800000));
  const auto smallest = hn::Set(di, (127 + F::kMinExponent) << 23);
  const auto factor = hn::Set(di, ((23 - F::kMantissaBits) << 23) + (1 << 22));
  const auto large = hn::BitCast(d, hn::Add(hn::Max(exponent, smallest), factor));
  const auto rounded = hn::Sub(hn::Add(value, large), large);
  const auto sign = hn::And(hn::BitCast(du, value), hn::Set(du, 0x80000000u));  // zero has lost it
  return hn::BitCast(d, hn::Or(hn::BitCast(du, rounded), sign));
}

// Which numbers of a block count for its largest.
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

// The bits of the largest magnitude, which compare like integers.
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

// The largest magnitude that needs no scale beyond the largest, 1.75 * 2^127.
inline constexpr uint32_t kLargestEncodable = 0x7F600000;

// The bits of the scale for a block whose largest finite number has the magnitude `largest`.
template <class F>
uint32_t ScaleBits(uint32_t largest) {
  if (largest == 0) return 127u << 23;
  // The formats' maxima are both 1.75 times a power of two: beyond that, the next power is needed.
  const uint32_t exponent = (std::min(largest, kLargestEncodable) + 0x1FFFFFu) >> 23;
  return (std::max(exponent, F::kLargestExponent + 1) - F::kLargestExponent) << 23;
}

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// What a block holds: where no number overflows or is none, fewer instructions encode it.
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

// The numbers of one block.
template <class F>
class BlockReader {
 public:
  explicit BlockReader(const uint8_t* block) : codes_(block + sizeof(float)) {
    float scale;
    std::memcpy(&scale, block, sizeof(scale));
    factor_ = scale * (1.0f / F::kToGrid);
  }

  // Those from `index` on.
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

// Calls `visit` with what the format is about.
template <class Visitor>
void VisitFp8Format(Fp8Format format, Visitor visit) {
  switch (format) {
    case Fp8Format::kE4M3:
      return visit(E4M3());
    case Fp8Format::kE5M2:
      return visit(E5M2());
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDA_KERNELS_CPU_FP8_INL_H_
