// The small vocabulary of the runtime: who (ranks), what (operations) and in which format it travels.
#ifndef RONDA_RUNTIME_BASE_TYPES_H_
#define RONDA_RUNTIME_BASE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/dtype.h"

namespace ronda {

// A process' (or thread's) number in the job, 0 <= rank < size. Rank 0 is the coordinator rank.
using RankId = int;

inline constexpr RankId kCoordinatorRank = 0;

// Dimensions of a tensor, outermost first; {} is a scalar.
using Shape = std::vector<int64_t>;

// Elements of a tensor of this shape; 1 for a scalar.
inline int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

// "[128, 10]"
inline std::string ToString(const Shape& shape) { return "[" + absl::StrJoin(shape, ", ") + "]"; }

// Numeric values are part of the protocol.
enum class OpType : uint8_t { kAllreduce = 0, kAllgather = 1, kBroadcast = 2, kBarrier = 3 };
inline constexpr int kOpTypeCount = 4;

constexpr const char* Name(OpType op) {
  constexpr const char* kNames[kOpTypeCount] = {"allreduce", "allgather", "broadcast", "barrier"};
  return kNames[static_cast<int>(op)];
}

constexpr std::optional<OpType> OpTypeFromInt(int64_t value) {
  if (value < 0 || value >= kOpTypeCount) return std::nullopt;
  return static_cast<OpType>(value);
}

// The format in which float32 and float64 elements of an allreduce travel between ranks; other dtypes travel as they
// are. Numeric values are part of the C ABI (ronda_compression) and of the protocol.
enum class WireFormat : uint8_t { kNone = 0, kFloat16 = 1, kBfloat16 = 2 };
inline constexpr int kWireFormatCount = 3;

constexpr const char* Name(WireFormat wire) {
  constexpr const char* kNames[kWireFormatCount] = {"none", "fp16", "bf16"};
  return kNames[static_cast<int>(wire)];
}

constexpr std::optional<WireFormat> WireFormatFromInt(int64_t value) {
  if (value < 0 || value >= kWireFormatCount) return std::nullopt;
  return static_cast<WireFormat>(value);
}

// The dtype in which `dtype` travels under `wire`.
constexpr DType WireDType(DType dtype, WireFormat wire) {
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return dtype;
  if (wire == WireFormat::kFloat16) return DType::kFloat16;
  if (wire == WireFormat::kBfloat16) return DType::kBfloat16;
  return dtype;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_TYPES_H_
