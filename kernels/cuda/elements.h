// SPDX-License-Identifier: Apache-2.0

// Loads, stores, converts and visits elements, on the device and on the host.
#ifndef RONDA_KERNELS_CUDA_ELEMENTS_H_
#define RONDA_KERNELS_CUDA_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/dtype.h"

// Marks code for the device and the host. The host runs it in tests, and as a fake device (tests/testing/fake_cuda).
#ifdef __CUDACC__
#define RONDA_HOST_DEVICE __host__ __device__
#else
#define RONDA_HOST_DEVICE
#endif

// Goes before a loop over an array that must stay in registers.
#ifdef __CUDA_ARCH__
#define RONDA_UNROLL _Pragma("unroll")
#else
#define RONDA_UNROLL
#endif

namespace ronda::kernels::cuda {

// Conversions between floating-point types, which round once, to nearest even. They give the same bits as kernels/cpu,
// except for NaN payloads.
//
// The host converts with integer arithmetic, and the device with its own instructions. Code that only the host or only
// the device runs is in this file and, for 8-bit codes, in fp8.h.

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
    // Infinity and NaN need a second adjustment of the exponent bias. A NaN becomes a quiet NaN.
    bits += (128u - 16u) << 23;
    if (shifted > 0x0F800000u) bits |= 0x00400000u;
  } else if (exponent == 0) {
    // To normalise a subnormal number exactly, subtracts the implicit bit of the smallest normal number in floating
    // point.
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
    // The last bit of 0.5 in fp32 has the weight of the last bit of subnormal fp16 numbers. So adding 0.5 rounds to
    // that bit.
    result = BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f) - (126u << 23);
  } else {
    // Rounds ties to even, by adding 0xFFF (one less than half the weight of the lowest kept bit) and the lowest kept
    // bit itself.
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

// Converts fp64 to fp32 with "round to odd": an inexact result is truncated, and its last bit is set. Rounding the
// result again, to at most 22 bits, yields the same as rounding `value` once.
RONDA_HOST_DEVICE inline float Fp32FromFp64RoundToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const double magnitude = value < 0 ? -value : value;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  uint32_t bits = BitCast<uint32_t>(nearest);
  if (magnitude < rounded) --bits;  // neither comparison holds for infinity or NaN
  if (magnitude < rounded || magnitude > rounded) bits |= 1u;
  return BitCast<float>(bits);
}

// Converts an element exactly to a float or double that is at least as wide.
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

// Rounds a float or double to the nearest element.
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

// The type for arithmetic between elements of types From and To.
template <class From, class To>
using LaneOf = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>, double, float>;

// The size of a GPU's widest memory access, in bytes.
inline constexpr int kAccessBytes = 16;

// Consecutive elements, moved by one access if they fit into the widest one, otherwise by several.
template <class E, int kCount>
struct alignas(kCount * sizeof(E) < kAccessBytes ? kCount * sizeof(E) : kAccessBytes) Vector {
  E at[kCount];
};

RONDA_HOST_DEVICE inline bool IsAligned(const void* pointer, size_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Returns whether vectors can be loaded and stored at `pointer`. (A null pointer is aligned.)
template <class E, int kCount>
RONDA_HOST_DEVICE inline bool IsAlignedFor(const void* pointer) {
  return IsAligned(pointer, alignof(Vector<E, kCount>));
}

// Loads from an address of any alignment, byte by byte. Does not use memcpy, because nvcc sometimes merged the memcpy
// with an access of the element's width, and emitted that access for both. Such an access faults at an unaligned
// address (tests/kernels/cuda/machine_code_test.cc).
template <class T>
RONDA_HOST_DEVICE inline T LoadBytes(const void* from) {
  uint8_t bytes[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<const uint8_t*>(from)[i];
  T value;
  memcpy(&value, bytes, sizeof(T));
  return value;
}

template <class T>
RONDA_HOST_DEVICE inline void StoreBytes(const T& value, void* to) {
  uint8_t bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof(T));
  for (size_t i = 0; i < sizeof(T); ++i) static_cast<uint8_t*>(to)[i] = bytes[i];
}

// A vector of one element may have any address; longer vectors must be aligned.
template <class E, int kCount>
RONDA_HOST_DEVICE inline Vector<E, kCount> Load(const void* from) {
  if constexpr (kCount == 1) {
    if (!IsAligned(from, sizeof(E))) return LoadBytes<Vector<E, 1>>(from);
  }
  return *static_cast<const Vector<E, kCount>*>(from);
}

template <class E, int kCount>
RONDA_HOST_DEVICE inline void Store(const Vector<E, kCount>& value, void* to) {
  if constexpr (kCount == 1) {
    if (!IsAligned(to, sizeof(E))) return StoreBytes(value, to);
  }
  *static_cast<Vector<E, kCount>*>(to) = value;
}

// Returns the address of element `index`. All element indices are 64-bit.
template <class E>
RONDA_HOST_DEVICE inline const uint8_t* At(const void* elements, uint64_t index) {
  return static_cast<const uint8_t*>(elements) + index * sizeof(E);
}

template <class E>
RONDA_HOST_DEVICE inline uint8_t* At(void* elements, uint64_t index) {
  return static_cast<uint8_t*>(elements) + index * sizeof(E);
}

// The error of an unsupported call: cudaErrorInvalidValue.
inline constexpr int kInvalidCall = 1;

// Call `visit` with the ElementType of `dtype`, and return its result, or kInvalidCall if `dtype` is not of the kind in
// the function's name.
template <class Visitor>
int VisitFloat(DType dtype, const Visitor& visit) {
  return VisitDType(dtype, [&]<class E>(ElementType<E> type) -> int {
    if constexpr (kKindOf<E> == DTypeKind::kFloating) {
      return visit(type);
    } else {
      return kInvalidCall;
    }
  });
}

template <class Visitor>
int VisitWideFloat(DType dtype, const Visitor& visit) {
  if (dtype == DType::kFloat32) return visit(ElementType<float>());
  if (dtype == DType::kFloat64) return visit(ElementType<double>());
  return kInvalidCall;
}

template <class Visitor>
int VisitInteger(DType dtype, const Visitor& visit) {
  return VisitDType(dtype, [&]<class E>(ElementType<E> type) -> int {
    if constexpr (kKindOf<E> == DTypeKind::kUnsigned || kKindOf<E> == DTypeKind::kSigned) {
      return visit(type);
    } else {
      return kInvalidCall;
    }
  });
}

// Calls `visit` with the unsigned integer type of `bytes` bytes.
template <class Visitor>
int VisitBits(size_t bytes, const Visitor& visit) {
  switch (bytes) {
    case 1:
      return visit(ElementType<uint8_t>());
    case 2:
      return visit(ElementType<uint16_t>());
    case 4:
      return visit(ElementType<uint32_t>());
    case 8:
      return visit(ElementType<uint64_t>());
    default:
      return kInvalidCall;
  }
}

}  // namespace ronda::kernels::cuda

#endif  // RONDA_KERNELS_CUDA_ELEMENTS_H_
