// Floating-point elements: the types of 16 bits, and conversions that round once, to nearest even, with the bits that
// kernels/cpu gives (but for which NaN a NaN is).
//
// The host converts by integer arithmetic, the device by its instructions; this is the only file with code for one of
// them alone.
#ifndef RONDA_KERNELS_CUDA_FLOATS_H_
#define RONDA_KERNELS_CUDA_FLOATS_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cuda/host_device.h"

namespace ronda::kernels::cuda {

struct Float16 {
  uint16_t bits;
};

struct Bfloat16 {
  uint16_t bits;
};

template <class To, class From>
RONDA_HOST_DEVICE inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

inline constexpr uint32_t kFloatInfinity = 0x7F800000;

RONDA_HOST_DEVICE inline float Fp32FromFp16(Float16 half) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half.bits));
  return value;
#else
  const uint32_t shifted = (half.bits & 0x7FFFu) << 13;
  const uint32_t exponent = shifted & 0x0F800000u;
  uint32_t bits = shifted + ((127u - 15u) << 23);
  if (exponent == 0x0F800000u) {
    // Infinity and NaN need the exponent's bias adjusted once more; NaN becomes quiet.
    bits += (128u - 16u) << 23;
    if (shifted > 0x0F800000u) bits |= 0x00400000u;
  } else if (exponent == 0) {
    // Subtracting the implicit bit of the smallest normal number in floating point normalises a subnormal, exactly.
    bits = BitCast<uint32_t>(BitCast<float>(bits + (1u << 23)) - BitCast<float>(113u << 23));
  }
  return BitCast<float>(bits | (half.bits & 0x8000u) << 16);
#endif
}

RONDA_HOST_DEVICE inline Float16 Fp16FromFp32(float value) {
#ifdef __CUDA_ARCH__
  Float16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(value));
  return half;
#else
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t result;
  if (magnitude > kFloatInfinity) {
    result = 0x7E00u | (magnitude >> 13 & 0x3FFu);
  } else if (magnitude >= 143u << 23) {  // 65536
    result = 0x7C00u;
  } else if (magnitude < 113u << 23) {
    // 0.5 has its last bit where fp16's last subnormal bit is, so that adding it rounds there.
    result = BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f) - (126u << 23);
  } else {
    // Half the lowest kept bit, less one, plus the lowest kept bit itself: ties carry into even.
    result = (magnitude - ((127u - 15u) << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  }
  return {static_cast<uint16_t>(result | (bits >> 16 & 0x8000u))};
#endif
}

RONDA_HOST_DEVICE inline float Fp32FromBf16(Bfloat16 value) {
  return BitCast<float>(static_cast<uint32_t>(value.bits) << 16);
}

RONDA_HOST_DEVICE inline Bfloat16 Bf16FromFp32(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  const uint32_t bits = BitCast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > kFloatInfinity) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + (bits >> 16 & 1u) + 0x7FFFu) >> 16)};
#endif
}

// "Round to odd": an inexact result is truncated and its last bit set, so that rounding it again, to at most 22 bits,
// gives what rounding `value` once would have given.
RONDA_HOST_DEVICE inline float Fp32FromFp64RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const double magnitude = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  uint32_t bits = BitCast<uint32_t>(nearest);
  if (magnitude < rounded) --bits;  // none of these for infinity and NaN
  if (magnitude < rounded || magnitude > rounded) bits |= 1u;
  return BitCast<float>(bits);
}

// An element's value, exactly, as a float or double of at least its width.
template <class Lane, class E>
RONDA_HOST_DEVICE inline Lane Widen(E element) {
  if constexpr (std::is_same_v<E, Float16>) {
    return static_cast<Lane>(Fp32FromFp16(element));
  } else if constexpr (std::is_same_v<E, Bfloat16>) {
    return static_cast<Lane>(Fp32FromBf16(element));
  } else {
    static_assert(sizeof(E) <= sizeof(Lane));
    return static_cast<Lane>(element);
  }
}

// The nearest element to a float or double.
template <class E, class Lane>
RONDA_HOST_DEVICE inline E RoundTo(Lane value) {
  if constexpr (std::is_same_v<E, float> || std::is_same_v<E, double>) {
    return static_cast<E>(value);
  } else if constexpr (std::is_same_v<Lane, double>) {
    return RoundTo<E>(Fp32FromFp64RoundToOdd(value));
  } else if constexpr (std::is_same_v<E, Float16>) {
    return Fp16FromFp32(value);
  } else {
    return Bf16FromFp32(value);
  }
}

// What arithmetic on elements of these types is done in.
template <class From, class To>
using LaneOf = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_FLOATS_H_
