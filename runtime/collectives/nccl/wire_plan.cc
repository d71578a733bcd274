#include "runtime/collectives/nccl/wire_plan.h"

#include <algorithm>
#include <numeric>

namespace ronda {
namespace {

constexpr size_t kAccessBytes = 16;

constexpr size_t RoundUp(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Of 16-bit floating-point numbers.
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

void WirePlan::Lay(const ReduceCall& call, size_t vote_elements) {
  layout_ = LayoutOf(call.dtype, call.wire);
  unit_ = std::lcm(kAccessBytes, layout_.granule_bytes);
  offsets_.clear();
  bytes_ = RoundUp(vote_elements * layout_.granule_bytes, unit_);
  for (const Segment& segment : call.segments) {
    offsets_.push_back(bytes_);
    const size_t granules = (segment.count + layout_.granule_elements - 1) / layout_.granule_elements;
    bytes_ += RoundUp(granules * layout_.granule_bytes, unit_);
  }
}

kernels::cuda::Wire WirePlan::wire() const {
  using Blocks = kernels::cuda::Wire::Blocks;
  if (!layout_.fp8.has_value()) return {.dtype = layout_.dtype};
  return {.dtype = layout_.dtype, .blocks = *layout_.fp8 == kernels::Fp8Format::kE4M3 ? Blocks::kE4M3 : Blocks::kE5M2};
}

size_t WirePlan::ShardBytes(int n) const {
  const auto shards = static_cast<size_t>(n);
  return RoundUp((bytes_ + shards - 1) / shards, unit_);
}

WirePlan::Range WirePlan::Shard(int i, int n) const {
  const size_t begin = std::min(bytes_, ShardBytes(n) * static_cast<size_t>(i));
  return {.begin = begin, .bytes = std::min(ShardBytes(n), bytes_ - begin)};
}

}  // namespace ronda
