// SPDX-License-Identifier: Apache-2.0

// The types of elements in tensors and on the wire, the reduction operators, the scales of elements, and the 8-bit
// formats.
//
// Each row of RONDA_DTYPE_TABLE has all facts about a dtype. Sizes, names, the validation of external numbers, the only
// switch over dtypes (VisitDType) and the test against the C ABI's enum are derived from the rows.
#ifndef RONDA_KERNELS_DTYPE_H_
#define RONDA_KERNELS_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <type_traits>

namespace ronda {

// Element types for which C++ has no portable type.
struct Float16 {
  uint16_t bits;  // IEEE 754 binary16
};
struct Bfloat16 {
  uint16_t bits;  // the upper half of an IEEE 754 binary32
};
struct Bool {
  uint8_t byte;  // any nonzero value is true; results are 0 or 1
};

enum class DTypeKind : uint8_t { kUnsigned, kSigned, kFloating, kBool };

// The columns are: the enumerator of DType; the suffix of the enumerator in client/ronda.h; the name in messages; the
// element type; the kind; and the bits of infinity (0 for a type that is not floating-point).
//
// The order of the rows determines the enumerators' numbers, which are part of the C ABI and of the protocol. So append
// new rows at the end, and never reorder rows.
#define RONDA_DTYPE_TABLE(ROW)                                             \
  ROW(kUint8, UINT8, "uint8", uint8_t, kUnsigned, 0)                       \
  ROW(kInt8, INT8, "int8", int8_t, kSigned, 0)                             \
  ROW(kInt32, INT32, "int32", int32_t, kSigned, 0)                         \
  ROW(kInt64, INT64, "int64", int64_t, kSigned, 0)                         \
  ROW(kFloat16, FLOAT16, "float16", Float16, kFloating, 0x7C00)            \
  ROW(kBfloat16, BFLOAT16, "bfloat16", Bfloat16, kFloating, 0x7F80)        \
  ROW(kFloat32, FLOAT32, "float32", float, kFloating, 0x7F800000)          \
  ROW(kFloat64, FLOAT64, "float64", double, kFloating, 0x7FF0000000000000) \
  ROW(kBool, BOOL, "bool", Bool, kBool, 0)                                 \
  ROW(kUint16, UINT16, "uint16", uint16_t, kUnsigned, 0)                   \
  ROW(kInt16, INT16, "int16", int16_t, kSigned, 0)                         \
  ROW(kUint32, UINT32, "uint32", uint32_t, kUnsigned, 0)                   \
  ROW(kUint64, UINT64, "uint64", uint64_t, kUnsigned, 0)

enum class DType : uint8_t {
#define RONDA_DTYPE_ENUMERATOR(enumerator, suffix, name, type, kind, infinity) enumerator,
  RONDA_DTYPE_TABLE(RONDA_DTYPE_ENUMERATOR)
#undef RONDA_DTYPE_ENUMERATOR
};

struct DTypeInfo {
  const char* name;
  size_t bytes;  // of one element
  DTypeKind kind;
  uint64_t infinity;  // the bits of infinity; 0: the type has none
};

inline constexpr DTypeInfo kDTypeTable[] = {
#define RONDA_DTYPE_INFO(enumerator, suffix, name, type, kind, infinity) \
  {name, sizeof(type), DTypeKind::kind, infinity},
    RONDA_DTYPE_TABLE(RONDA_DTYPE_INFO)
#undef RONDA_DTYPE_INFO
};
inline constexpr int kDTypeCount = static_cast<int>(std::size(kDTypeTable));

// The DType whose elements are of type E.
template <class E>
inline constexpr DType kDTypeOf = DType{0xFF};
#define RONDA_DTYPE_OF(enumerator, suffix, name, type, kind, infinity) \
  template <>                                                          \
  inline constexpr DType kDTypeOf<type> = DType::enumerator;
RONDA_DTYPE_TABLE(RONDA_DTYPE_OF)
#undef RONDA_DTYPE_OF

constexpr const DTypeInfo& InfoOf(DType dtype) { return kDTypeTable[static_cast<int>(dtype)]; }

// Returns the number of bytes of one element.
constexpr size_t SizeOf(DType dtype) { return InfoOf(dtype).bytes; }

// "float32", "bool", ...
constexpr const char* Name(DType dtype) { return InfoOf(dtype).name; }

constexpr bool IsFloatingPoint(DType dtype) { return InfoOf(dtype).kind == DTypeKind::kFloating; }

// The kind of the element type E, for `if constexpr`.
template <class E>
inline constexpr DTypeKind kKindOf = InfoOf(kDTypeOf<E>).kind;

// Tells a visitor the element type E.
template <class E>
struct ElementType {
  using Type = E;
};

// Calls `visit` with the ElementType of `dtype`, and returns its result. Contains the only switch over dtypes, through
// which kernels select their template instances.
template <class Visitor>
constexpr decltype(auto) VisitDType(DType dtype, const Visitor& visit) {
  switch (dtype) {
#define RONDA_DTYPE_CASE(enumerator, suffix, name, type, kind, infinity) \
  case DType::enumerator:                                                \
    return visit(ElementType<type>());
    RONDA_DTYPE_TABLE(RONDA_DTYPE_CASE)
#undef RONDA_DTYPE_CASE
  }
  __builtin_unreachable();  // external numbers have passed DTypeFromInt()
}

// Converts a number from a client or a peer. Returns nullopt if no DType has this number.
constexpr std::optional<DType> DTypeFromInt(int64_t value) {
  if (value < 0 || value >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(value);
}

// Numeric values are part of the C ABI and of the protocol, as in DType. There is no operator for averages, which are
// kSum with a divisor (see kernels::Scale).
enum class ReduceOp : uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProduct = 3,
  kBitAnd = 4,  // the bitwise operators are defined on integers and bool
  kBitOr = 5,
  kBitXor = 6,
};
inline constexpr int kReduceOpCount = 7;

// "sum", "min", ...
constexpr const char* Name(ReduceOp op) {
  constexpr const char* kNames[kReduceOpCount] = {"sum", "min", "max", "product", "band", "bor", "bxor"};
  return kNames[static_cast<int>(op)];
}

// Returns whether `op` is defined on elements of `dtype`.
constexpr bool Supports(ReduceOp op, DType dtype) { return op < ReduceOp::kBitAnd || !IsFloatingPoint(dtype); }

namespace kernels {

// Scales elements: multiplies them by `multiplier` and divides them by `divisor`.
//
// Floating-point elements are multiplied by the factor multiplier / divisor, computed once in fp64 and rounded to the
// type of the arithmetic (fp32 for 16-bit types). An integer x becomes (x * multiplier) / divisor, computed in fp64,
// rounded towards zero, and clamped to the range of the element type. Here, x is an element, or a sum in a wider type
// (AddsWide). With multiplier 1, this is exact integer division. A scale has no effect on bool.
struct Scale {
  double multiplier = 1.0;
  int64_t divisor = 1;  // the number of ranks for an average; > 0

  constexpr bool IsIdentity() const { return multiplier == 1.0 && divisor == 1; }

  // Returns the factor for floating-point elements. (Divides only if the divisor is not 1, because a division takes a
  // noticeable part of a reduction of 70 ns.)
  constexpr double Factor() const { return divisor == 1 ? multiplier : multiplier / static_cast<double>(divisor); }
};

// Rounds `value` towards zero, clamped to the range of T. Returns 0 for NaN. (GPUs also run this function, so it does
// not use <cmath>.)
template <class T>
constexpr T SaturatingTruncate(double value) {
  // kLimit, a power of two, is exact as a double. T's maximum may not be, and would be rounded up in a comparison.
  constexpr double kLimit = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (value >= kLimit) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return value == value ? static_cast<T>(value) : T{0};
}

// The type of an integer sum that is scaled afterwards. It can hold the sum of up to 2^32 elements of type T.
template <class T>
struct WideInteger {
  using Type = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
};
template <>
struct WideInteger<int64_t> {
  __extension__ using Type = __int128;
};
template <>
struct WideInteger<uint64_t> {
  __extension__ using Type = unsigned __int128;
};

// Returns whether a reduction adds elements of `dtype` in their WideInteger type, so that an average is correct even if
// the sum does not fit into `dtype`. Unscaled integer sums wrap around.
constexpr bool AddsWide(ReduceOp op, DType dtype, const Scale& scale) {
  const DTypeKind kind = InfoOf(dtype).kind;
  const bool is_integer = kind == DTypeKind::kSigned || kind == DTypeKind::kUnsigned;
  return op == ReduceOp::kSum && is_integer && !scale.IsIdentity();
}

// Scales an integer element or sum as described at Scale.
template <class T>
constexpr T ScaleInteger(typename WideInteger<T>::Type value, const Scale& scale) {
  using Wide = typename WideInteger<T>::Type;
  if (scale.multiplier != 1.0) {
    return SaturatingTruncate<T>(static_cast<double>(value) * scale.multiplier / static_cast<double>(scale.divisor));
  }
  const Wide quotient = value / static_cast<Wide>(scale.divisor);
  if (quotient > Wide{std::numeric_limits<T>::max()}) return std::numeric_limits<T>::max();
  if constexpr (std::is_signed_v<T>) {
    if (quotient < Wide{std::numeric_limits<T>::min()}) return std::numeric_limits<T>::min();
  }
  return static_cast<T>(quotient);
}

// The 8-bit wire formats consist of blocks.
//
// A block is a float32 scale followed by 256 codes. OCP's "8-bit Floating Point Specification" (OFP8) defines the
// codes. An element's value is the value of its code times the block's scale. The scale is the smallest power of two
// for which the block's largest finite magnitude fits into the format's range, or 1 for a block of zeros. Division by a
// power of two is exact, so only the conversion to the code rounds. The scale is at least 2^-126, so it has an inverse,
// and small enough that every code has a finite value. A magnitude overflows only if it would be rounded to more than
// 1.75 * 2^127; it then becomes infinity or, in a format without infinity, NaN. In a shorter last block, the unused
// codes are zeros.
//
// Numbers are rounded to nearest even, and there is only one code for NaN, so equal inputs give equal bytes on every
// CPU.
enum class Fp8Format : uint8_t {
  kE4M3 = 0,  // up to 448; no infinity, which becomes NaN
  kE5M2 = 1,  // up to 57344; infinity and NaN as in IEEE 754
};

inline constexpr size_t kFp8BlockElements = 256;
inline constexpr size_t kFp8BlockBytes = sizeof(float) + kFp8BlockElements;

// Returns the number of blocks for `count` elements.
constexpr size_t Fp8BlockCount(size_t count) { return (count + kFp8BlockElements - 1) / kFp8BlockElements; }
constexpr size_t Fp8Bytes(size_t count) { return Fp8BlockCount(count) * kFp8BlockBytes; }

}  // namespace kernels
}  // namespace ronda

#endif  // RONDA_KERNELS_DTYPE_H_
