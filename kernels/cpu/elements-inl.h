// SPDX-License-Identifier: Apache-2.0

// Loads elements of any type into vectors, and stores vectors as elements.
//
// Highway's foreach_target.h includes this file once per SIMD target, so the file has no ordinary include guard. All
// functions here return the same bits on every target. Highway's own fp16 and bf16 conversions do not: without a CPU
// instruction for the conversion, they truncate, or mishandle infinities. In that case, this file converts with integer
// arithmetic instead.
#if defined(RONDA_KERNELS_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef RONDA_KERNELS_CPU_ELEMENTS_INL_H_
#undef RONDA_KERNELS_CPU_ELEMENTS_INL_H_
#else
#define RONDA_KERNELS_CPU_ELEMENTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ronda::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// AVX2 and newer targets convert between fp16 and fp32 in hardware, with the same results as the code below.
inline constexpr bool kHasF16c = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL;
// True for scalar targets, on which Highway's conversion from fp64 to fp32 saturates where the result should be
// infinity.
inline constexpr bool kIsEmulated = HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128;

// Converts fp16, in the low half of each 32-bit lane, to fp32.
template <class D>  // of float
HWY_INLINE hn::Vec<D> Fp32FromFp16(D d, hn::Vec<hn::RebindToUnsigned<D>> half) {
  const hn::RebindToUnsigned<D> du;
  const auto exponent_and_mantissa = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7FFFu)));
  const auto exponent = hn::And(exponent_and_mantissa, hn::Set(du, 0x0F800000u));
  const auto rebiased = hn::Add(exponent_and_mantissa, hn::Set(du, (127u - 15u) << 23));
  // Infinity and NaN need a second adjustment of the exponent bias. A NaN becomes a quiet NaN.
  const auto is_nan = hn::Gt(exponent_and_mantissa, hn::Set(du, 0x0F800000u));
  const auto quiet_bit = hn::IfThenElseZero(is_nan, hn::Set(du, 0x00400000u));
  const auto special = hn::Or(hn::Add(rebiased, hn::Set(du, (128u - 16u) << 23)), quiet_bit);
  // To normalise a subnormal number exactly, subtracts the implicit bit of the smallest normal number in floating
  // point.
  const auto smallest_normal = hn::Set(du, 113u << 23);
  const auto with_implicit_bit = hn::BitCast(d, hn::Add(rebiased, hn::Set(du, 1u << 23)));
  const auto subnormal = hn::BitCast(du, hn::Sub(with_implicit_bit, hn::BitCast(d, smallest_normal)));

  auto bits = hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), subnormal, rebiased);
  bits = hn::IfThenElse(hn::Eq(exponent, hn::Set(du, 0x0F800000u)), special, bits);
  return hn::BitCast(d, hn::Or(bits, hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)))));
}

// Converts fp32 to fp16 in the low half of each 32-bit lane, rounding to nearest even.
template <class D>  // of float
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Fp16FromFp32(D d, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  // Rounds ties to even, by adding 0xFFF (one less than half the weight of the lowest kept bit) and the lowest kept bit
  // itself.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rebiased = hn::Sub(magnitude, hn::Set(du, (127u - 15u) << 23));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, hn::Add(odd, hn::Set(du, 0xFFFu))));
  // The last bit of 0.5 in fp32 has the weight of the last bit of subnormal fp16 numbers. So adding 0.5 rounds a small
  // number to a multiple of 2^-24.
  const auto half = hn::Set(du, 126u << 23);
  const auto aligned = hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, half));
  const auto subnormal = hn::Sub(hn::BitCast(du, aligned), half);
  const auto infinity = hn::Set(du, 0x7C00u);
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3FFu));
  const auto nan = hn::Or(payload, hn::Set(du, 0x7E00u));

  auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 113u << 23)), subnormal, normal);
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, (143u << 23) - 1)), infinity, result);  // 65536 and up
  result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(du, 0x7F800000u)), nan, result);
  return hn::Or(result, hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u)));
}

// Converts fp32 to bf16 in the low half of each lane, rounding to nearest even. Does not use the CPU's bf16
// instructions, because they flush subnormals to zero.
template <class D>  // of float
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> Bf16FromFp32(D, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), hn::Or(upper, hn::Set(du, 0x40u)), rounded);
}

// Returns the low 16 bits of each 32-bit lane.
template <class D>  // of uint32_t
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> LowHalves(D, hn::Vec<D> value) {
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(hn::RebindToSigned<D>(), value));
}

// Convert between fp16 patterns and fp32, in hardware if the target has the instructions.
template <class D>  // of float
HWY_INLINE hn::Vec<D> Fp32FromFp16Bits(D d, hn::Vec<hn::Rebind<uint16_t, D>> bits) {
  if constexpr (kHasF16c) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  } else {
    return Fp32FromFp16(d, hn::PromoteTo(hn::RebindToUnsigned<D>(), bits));
  }
}

template <class D>  // of float
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> Fp16BitsFromFp32(D d, hn::Vec<D> value) {
  if constexpr (kHasF16c) {
    return hn::BitCast(hn::Rebind<uint16_t, D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  } else {
    return LowHalves(hn::RebindToUnsigned<D>(), Fp16FromFp32(d, value));
  }
}

template <class D>  // of float
HWY_INLINE hn::Vec<D> Fp32FromFp64(D d, hn::Vec<hn::Rebind<double, D>> value) {
  if constexpr (kIsEmulated) {
    const hn::Rebind<double, D> wide;
    double in[HWY_MAX_BYTES / sizeof(double)];
    float out[HWY_MAX_BYTES / sizeof(double)];
    hn::StoreU(value, wide, in);
    for (size_t i = 0; i < hn::Lanes(wide); ++i) out[i] = static_cast<float>(in[i]);
    return hn::LoadU(d, out);
  } else {
    return hn::DemoteTo(d, value);
  }
}

// Converts 1.0 and 0.0 in `flags` to the integers 1 and 0 in 32-bit lanes. (`flags` is not a mask, because Highway
// cannot narrow a mask of 64-bit lanes.)
template <class D>  // of float
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> OneWhereOne(D d, hn::Vec<hn::Rebind<double, D>> flags) {
  const hn::RebindToUnsigned<D> du;
  return hn::And(hn::ShiftRight<23>(hn::BitCast(du, Fp32FromFp64(d, flags))), hn::Set(du, 1u));
}

// Converts fp64 to fp32 with "round to odd": an inexact result is truncated, and its last bit is set. Rounding the
// result again, to at most 22 bits, yields the same as rounding `value` once.
template <class D>  // of float
HWY_INLINE hn::Vec<D> Fp32FromFp64RoundToOdd(D d, hn::Vec<hn::Rebind<double, D>> value) {
  const hn::Rebind<double, D> wide;
  const hn::RebindToUnsigned<D> du;
  const auto nearest = Fp32FromFp64(d, value);
  // `error` is positive where the magnitude of `nearest` is too small, negative where it is too large, and NaN for
  // infinity and NaN.
  const auto error = hn::Sub(hn::Abs(value), hn::Abs(hn::PromoteTo(wide, nearest)));
  const auto zero = hn::Zero(wide);
  const auto too_large = hn::IfThenElseZero(hn::Lt(error, zero), hn::Set(wide, 1.0));
  const auto inexact = hn::Or(too_large, hn::IfThenElseZero(hn::Gt(error, zero), hn::Set(wide, 1.0)));
  const auto truncated = hn::Sub(hn::BitCast(du, nearest), OneWhereOne(d, too_large));
  return hn::BitCast(d, hn::Or(truncated, OneWhereOne(d, inexact)));
}

// True if vectors of type D have one lane, which Highway loads and stores as a float or double, at an aligned address.
template <class D>
inline constexpr bool kIsOneLane = hn::MaxLanes(D()) == 1;

// Loads one vector of elements of type E from `from`, which may be unaligned. Converts them to the lane type of D,
// which is E or a wider type.
template <class E, class D>
HWY_INLINE hn::Vec<D> LoadElements(D d, const uint8_t* from) {
  using Lane = hn::TFromD<D>;
  if constexpr (std::is_same_v<E, Lane> && kIsOneLane<D>) {
    E element;
    std::memcpy(&element, from, sizeof(element));
    return hn::Set(d, element);
  } else if constexpr (std::is_same_v<E, Lane>) {
    return hn::LoadU(d, reinterpret_cast<const E*>(from));
  } else if constexpr (std::is_same_v<Lane, double>) {
    const hn::Rebind<float, D> narrow;
    return hn::PromoteTo(d, LoadElements<E>(narrow, from));
  } else if constexpr (std::is_same_v<E, Float16> || std::is_same_v<E, Bfloat16>) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> du;
    const auto raw = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    if constexpr (std::is_same_v<E, Bfloat16>) {
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, raw)));
    } else {
      return Fp32FromFp16Bits(d, raw);
    }
  } else {
    const hn::Rebind<E, D> narrow;
    return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const E*>(from)));
  }
}

// Stores a vector as elements of type E, rounding floating-point values once, to nearest even.
template <class E, class D>
HWY_INLINE void StoreElements(D d, hn::Vec<D> value, uint8_t* to) {
  using Lane = hn::TFromD<D>;
  if constexpr (std::is_same_v<E, Lane> && kIsOneLane<D>) {
    const E element = hn::GetLane(value);
    std::memcpy(to, &element, sizeof(element));
  } else if constexpr (std::is_same_v<E, Lane>) {
    hn::StoreU(value, d, reinterpret_cast<E*>(to));
  } else if constexpr (std::is_same_v<Lane, double>) {
    const hn::Rebind<float, D> narrow;
    if constexpr (std::is_same_v<E, float>) {
      StoreElements<E>(narrow, Fp32FromFp64(narrow, value), to);
    } else {
      StoreElements<E>(narrow, Fp32FromFp64RoundToOdd(narrow, value), to);
    }
  } else if constexpr (std::is_same_v<E, Bfloat16> || std::is_same_v<E, Float16>) {
    const hn::Rebind<uint16_t, D> d16;
    auto* to16 = reinterpret_cast<uint16_t*>(to);
    if constexpr (std::is_same_v<E, Bfloat16>) {
      hn::StoreU(LowHalves(hn::RebindToUnsigned<D>(), Bf16FromFp32(d, value)), d16, to16);
    } else {
      hn::StoreU(Fp16BitsFromFp32(d, value), d16, to16);
    }
  } else {
    static_assert(std::is_same_v<E, uint8_t> && std::is_same_v<Lane, uint16_t>);
    const hn::Rebind<uint8_t, D> narrow;
    const hn::RebindToSigned<D> di16;
    const auto low_byte = hn::BitCast(di16, hn::And(value, hn::Set(d, uint16_t{0xFF})));
    hn::StoreU(hn::DemoteTo(narrow, low_byte), narrow, to);
  }
}

// Rounds a vector of floats as if it were stored as 16-bit elements of type E.
template <class E, class D>
HWY_INLINE hn::Vec<D> RoundedTo(D d, hn::Vec<D> value) {
  if constexpr (std::is_same_v<E, Bfloat16>) {
    return hn::BitCast(d, hn::ShiftLeft<16>(Bf16FromFp32(d, value)));
  } else {
    return Fp32FromFp16Bits(d, Fp16BitsFromFp32(d, value));
  }
}

// The largest vectors of floats that can be stored as one vector of elements of type E.
template <class E>
using FloatsFor =
    std::conditional_t<std::is_same_v<E, double>, hn::Rebind<float, hn::ScalableTag<double>>, hn::ScalableTag<float>>;

// Loads floating-point elements and multiplies them by `factor` in fp32, or in fp64 before rounding if the elements are
// fp64.
template <class E, class D>  // of float
HWY_INLINE hn::Vec<D> LoadScaledFloats(D d, const uint8_t* from, double factor) {
  if constexpr (std::is_same_v<E, double>) {
    const hn::Rebind<double, D> wide;
    return Fp32FromFp64(d, hn::Mul(LoadElements<E>(wide, from), hn::Set(wide, factor)));
  } else {
    return hn::Mul(LoadElements<E>(d, from), hn::Set(d, static_cast<float>(factor)));
  }
}

template <class E, class D>  // of float
HWY_INLINE void StoreFloats(D d, hn::Vec<D> value, uint8_t* to) {
  if constexpr (std::is_same_v<E, double>) {
    const hn::Rebind<double, D> wide;
    StoreElements<E>(wide, hn::PromoteTo(wide, value), to);
  } else {
    StoreElements<E>(d, value, to);
  }
}

// Calls `visit` with the ElementType of `dtype`.
//
// REQUIRES: `dtype` is a floating-point type.
template <class Visitor>
void VisitFloatType(DType dtype, const Visitor& visit) {
  VisitDType(dtype, [&]<class E>(ElementType<E> type) {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      visit(type);
    } else {
      HWY_ABORT("%s is not a floating-point type", Name(dtype));
    }
  });
}

// Returns the error of rounding `value` to `rounded`, or 0 if either is not finite, because infinity and NaN would stay
// in the residual for ever.
template <class D>  // of float
HWY_INLINE hn::Vec<D> Lost(D d, hn::Vec<D> value, hn::Vec<D> rounded) {
  const hn::RebindToSigned<D> di;
  const auto lost = hn::Sub(value, rounded);
  const auto is_finite = hn::Lt(hn::BitCast(di, hn::Abs(lost)), hn::Set(di, 0x7F800000));
  return hn::IfThenElseZero(hn::RebindMask(d, is_finite), lost);
}

struct Sum {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Add(a, b);
  }
};

struct BitAnd {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Xor(a, b);
  }
};

// The exclusive or of truth values: bytes of which all but zero are true.
struct BoolXor {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const auto one = hn::Set(d, hn::TFromD<D>{1});
    return hn::Xor(hn::Min(a, one), hn::Min(b, one));
  }
};

struct Product {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D, hn::Vec<D> a, hn::Vec<D> b) {
    return hn::Mul(a, b);
  }
};

// Uses comparisons, which give the same result on all targets, because the targets' min and max instructions differ for
// NaN and signed zeros. `keep_a` is false if either value is NaN, so the result is b unless a is NaN.
template <class D, class M>
HWY_INLINE hn::Vec<D> SelectOrNan(D, M keep_a, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(keep_a, a, b));
}

struct Min {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return SelectOrNan(d, hn::Le(a, b), a, b);
    return hn::Min(a, b);
  }
};

struct Max {
  template <class D>
  static HWY_INLINE hn::Vec<D> Apply(D d, hn::Vec<D> a, hn::Vec<D> b) {
    if constexpr (hwy::IsFloat<hn::TFromD<D>>()) return SelectOrNan(d, hn::Ge(a, b), a, b);
    return hn::Max(a, b);
  }
};

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace ronda::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // RONDA_KERNELS_CPU_ELEMENTS_INL_H_
