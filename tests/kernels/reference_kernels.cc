// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/reference_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/testing/scalar_reference.h"

namespace ronda::kernels {
namespace {

using ::ronda::testing::ReadElement;
using ::ronda::testing::RoundedTo;
using ::ronda::testing::WriteElement;

template <class T>
T LoadInteger(const void* buffer, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(buffer) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void StoreInteger(void* buffer, size_t index, T value) {
  std::memcpy(static_cast<char*>(buffer) + index * sizeof(T), &value, sizeof(T));
}

// A type that can hold every sum of a few integers.
__extension__ using Sum = __int128;

template <class T>
T ScaledInteger(Sum value, const Scale& scale) {
  // long double can hold every 64-bit integer, so comparisons with the limits are exact.
  long double scaled =
      scale.multiplier == 1.0
          ? static_cast<long double>(value / scale.divisor)
          : std::trunc(static_cast<double>(value) * scale.multiplier / static_cast<double>(scale.divisor));
  if (std::isnan(scaled)) return 0;
  scaled = std::max(scaled, static_cast<long double>(std::numeric_limits<T>::min()));
  scaled = std::min(scaled, static_cast<long double>(std::numeric_limits<T>::max()));
  return static_cast<T>(scaled);
}

// Returns a op b for integers or booleans.
template <class T>
T Combine(ReduceOp op, T a, T b) {
  using Wrapping = uint64_t;
  switch (op) {
    case ReduceOp::kSum:
      return static_cast<T>(static_cast<Wrapping>(a) + static_cast<Wrapping>(b));
    case ReduceOp::kProduct:
      return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b));
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kBitAnd:
      return static_cast<T>(a & b);
    case ReduceOp::kBitOr:
      return static_cast<T>(a | b);
    case ReduceOp::kBitXor:
      return static_cast<T>(a ^ b);
  }
  return a;
}

template <class T>
T CombineFloats(ReduceOp op, T a, T b) {
  if (std::isnan(a)) return a;
  if (std::isnan(b)) return b;
  switch (op) {
    case ReduceOp::kSum:
      return a + b;
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kMin:
      return b < a ? b : a;
    case ReduceOp::kMax:
      return b > a ? b : a;
    default:
      break;  // not defined on floating-point types
  }
  return a;
}

template <class T>
void ReduceIntegers(const ReduceArgs& args) {
  for (size_t i = 0; i < args.count; ++i) {
    T value = LoadInteger<T>(args.sources[0], i);
    Sum sum = value;
    for (size_t s = 1; s < args.sources.size(); ++s) {
      const T next = LoadInteger<T>(args.sources[s], i);
      value = Combine(args.op, value, next);
      sum += next;
    }
    const Sum result = AddsWide(args.op, args.dtype, args.scale) ? sum : Sum{value};
    StoreInteger(args.dst, i, ScaledInteger<T>(result, args.scale));
  }
}

// Reduces floating-point elements, with arithmetic in type `T`.
template <class T>
void ReduceFloats(const ReduceArgs& args) {
  const T factor = static_cast<T>(args.scale.multiplier / static_cast<double>(args.scale.divisor));
  for (size_t i = 0; i < args.count; ++i) {
    T value = static_cast<T>(ReadElement(args.sources[0], args.dtype, i));
    for (size_t s = 1; s < args.sources.size(); ++s) {
      value = CombineFloats(args.op, value, static_cast<T>(ReadElement(args.sources[s], args.dtype, i)));
    }
    WriteElement(args.dst, args.dst_dtype, i, RoundedTo(args.dtype, value * factor));
  }
}

bool ReducedBool(ReduceOp op, size_t true_count, size_t source_count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return true_count > 0;
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return true_count == source_count;
    case ReduceOp::kBitXor:
      return true_count % 2 == 1;
  }
  return false;
}

void ReduceBools(const ReduceArgs& args) {
  for (size_t i = 0; i < args.count; ++i) {
    const auto is_true = [&](const void* source) { return ReadElement(source, DType::kBool, i) != 0; };
    const auto true_count = std::count_if(args.sources.begin(), args.sources.end(), is_true);
    const bool result = ReducedBool(args.op, static_cast<size_t>(true_count), args.sources.size());
    WriteElement(args.dst, DType::kBool, i, result ? 1 : 0);
  }
}

}  // namespace

float CombinedFloats(ReduceOp op, float a, float b) { return CombineFloats(op, a, b); }

void ReferenceConvert(const void* src, DType src_dtype, void* dst, DType dst_dtype, size_t count, const Scale& scale) {
  if (!IsFloatingPoint(src_dtype)) {
    return ReferenceReduce({.sources = {&src, 1},
                            .dtype = src_dtype,
                            .op = ReduceOp::kSum,
                            .scale = scale,
                            .dst = dst,
                            .dst_dtype = dst_dtype,
                            .count = count});
  }
  const bool wide = src_dtype == DType::kFloat64 || dst_dtype == DType::kFloat64;
  const double factor = scale.multiplier / static_cast<double>(scale.divisor);
  for (size_t i = 0; i < count; ++i) {
    const double value = ReadElement(src, src_dtype, i);
    const double narrow = static_cast<float>(value) * static_cast<float>(factor);
    WriteElement(dst, dst_dtype, i, wide ? value * factor : narrow);
  }
}

void ReferenceReduce(const ReduceArgs& args) {
  VisitDType(args.dtype, [&]<class E>(ElementType<E>) {
    if constexpr (kKindOf<E> == DTypeKind::kBool) {
      ReduceBools(args);
    } else if constexpr (kKindOf<E> != DTypeKind::kFloating) {
      ReduceIntegers<E>(args);
    } else {
      ReduceFloats<std::conditional_t<std::is_same_v<E, double>, double, float>>(args);
    }
  });
}

}  // namespace ronda::kernels
