// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/nccl/nccl_arithmetic.h"

#include <cstddef>

namespace ronda {
namespace {

// Returns whether the layout's elements are 16-bit floating-point numbers.
bool IsNarrow(const WireLayout& layout) {
  return !layout.fp8.has_value() && IsFloatingPoint(layout.dtype) && SizeOf(layout.dtype) < sizeof(float);
}

}  // namespace

std::optional<NcclDataType> NcclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return NcclDataType::kUint8;
    case DType::kInt8:
      return NcclDataType::kInt8;
    case DType::kInt32:
      return NcclDataType::kInt32;
    case DType::kInt64:
      return NcclDataType::kInt64;
    case DType::kUint32:
      return NcclDataType::kUint32;
    case DType::kUint64:
      return NcclDataType::kUint64;
    case DType::kFloat16:
      return NcclDataType::kFloat16;
    case DType::kBfloat16:
      return NcclDataType::kBfloat16;
    case DType::kFloat32:
      return NcclDataType::kFloat32;
    case DType::kFloat64:
      return NcclDataType::kFloat64;
    default:  // NCCL has no such type
      return std::nullopt;
  }
}

std::optional<NcclRedOp> NcclOpOf(const WireLayout& layout, ReduceOp op, SumOrder order) {
  const bool is_floating = IsFloatingPoint(layout.dtype);
  if (layout.fp8.has_value() || !NcclTypeOf(layout.dtype).has_value()) return std::nullopt;
  if (is_floating && order == SumOrder::kOfRanks) return std::nullopt;
  switch (op) {
    case ReduceOp::kSum:
      return NcclRedOp::kSum;
    case ReduceOp::kProduct:
      return IsNarrow(layout) ? std::nullopt : std::optional(NcclRedOp::kProd);
    case ReduceOp::kMin:
      return is_floating ? std::nullopt : std::optional(NcclRedOp::kMin);
    case ReduceOp::kMax:
      return is_floating ? std::nullopt : std::optional(NcclRedOp::kMax);
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      return std::nullopt;
  }
  return std::nullopt;
}

WireFactors FactorsOf(const WireLayout& layout, const ReduceCall& call) {
  if (call.op != ReduceOp::kSum || !IsNarrow(layout)) return {.before = call.prescale, .after = call.postscale};
  return {.before = {.multiplier = call.prescale.multiplier * call.postscale.multiplier,
                     .divisor = call.prescale.divisor * call.postscale.divisor},
          .after = {}};
}

}  // namespace ronda
