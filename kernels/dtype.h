// Element types of tensors and of the wire, and the reduction operators on them.
//
// The numeric values are part of the C ABI (ronda.h) and of the protocol: append, never renumber.
#ifndef RONDA_KERNELS_DTYPE_H_
#define RONDA_KERNELS_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ronda {

enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,   // IEEE 754 binary16
  kBfloat16 = 5,  // the upper half of binary32
  kFloat32 = 6,
  kFloat64 = 7,
  kBool = 8,  // one byte; any value but zero is true, and results are 0 or 1
  kUint16 = 9,
  kInt16 = 10,
  kUint32 = 11,
  kUint64 = 12,
};
inline constexpr int kDTypeCount = 13;

// Average is not an operator of its own: it is kSum with a divisor (see Scale in kernels/cpu/scale.h).
enum class ReduceOp : uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProduct = 3,
  kBitAnd = 4,  // the bitwise ones are for integers and bool
  kBitOr = 5,
  kBitXor = 6,
};
inline constexpr int kReduceOpCount = 7;

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kUint16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kUint32:
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kUint64:
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  return 0;
}

constexpr bool IsFloatingPoint(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

// Whether `op` is defined on elements of `dtype`.
constexpr bool Supports(ReduceOp op, DType dtype) {
  const bool is_bitwise = op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
  return !is_bitwise || !IsFloatingPoint(dtype);
}

// "float32", "bool", ...
constexpr const char* Name(DType dtype) {
  constexpr const char* kNames[kDTypeCount] = {"uint8",   "int8", "int32",  "int64", "float16", "bfloat16", "float32",
                                               "float64", "bool", "uint16", "int16", "uint32",  "uint64"};
  return kNames[static_cast<int>(dtype)];
}

// "sum", "min", ...
constexpr const char* Name(ReduceOp op) {
  constexpr const char* kNames[kReduceOpCount] = {"sum", "min", "max", "product", "band", "bor", "bxor"};
  return kNames[static_cast<int>(op)];
}

// Checks a number that came from a client or a peer; nullopt if it names no type.
constexpr std::optional<DType> DTypeFromInt(int64_t value) {
  if (value < 0 || value >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(value);
}

constexpr std::optional<ReduceOp> ReduceOpFromInt(int64_t value) {
  if (value < 0 || value >= kReduceOpCount) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

}  // namespace ronda

#endif  // RONDA_KERNELS_DTYPE_H_
