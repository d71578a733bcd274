// The small vocabulary of the runtime: who (ranks), what (operations) and in which format it travels.
#ifndef RONDA_RUNTIME_BASE_TYPES_H_
#define RONDA_RUNTIME_BASE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// Names a process set: ranks that run collectives among themselves. Ids are given out in the order of creation, the
// same on every rank, and never used twice.
using ProcessSetId = uint32_t;

// All ranks of the job.
inline constexpr ProcessSetId kGlobalProcessSet = 0;

// Numeric values are part of the protocol.
enum class OpType : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kReduce = 4,
  kReduceScatter = 5,
  kGather = 6,
  kScatter = 7,
  kAlltoall = 8,
  kSendRecv = 9,          // one tensor from one rank to another
  kJoin = 10,             // takes no part any more, until all have joined
  kAddProcessSet = 11,    // by all ranks of the job
  kRemoveProcessSet = 12  // by all ranks of the job
};
inline constexpr int kOpTypeCount = 13;

constexpr const char* Name(OpType op) {
  constexpr const char* kNames[kOpTypeCount] = {
      "allreduce", "allgather", "broadcast", "barrier", "reduce",          "reducescatter",     "gather",
      "scatter",   "alltoall",  "send/recv", "join",    "add_process_set", "remove_process_set"};
  return kNames[static_cast<int>(op)];
}

constexpr std::optional<OpType> OpTypeFromInt(int64_t value) {
  if (value < 0 || value >= kOpTypeCount) return std::nullopt;
  return static_cast<OpType>(value);
}

// What a client asks for when it reduces. Numeric values are part of the C ABI (ronda_reduce_op) and of the protocol.
enum class Reduction : uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProduct = 3,
  kAverage = 4,  // the sum divided by the number of ranks that take part
  kBitAnd = 5,   // integers and bool
  kBitOr = 6,
  kBitXor = 7,
  kAdasum = 8,  // floating point; see runtime/collectives/adasum.h
};
inline constexpr int kReductionCount = 9;

constexpr const char* Name(Reduction reduction) {
  constexpr const char* kNames[kReductionCount] = {"sum",  "min", "max",  "product", "average",
                                                   "band", "bor", "bxor", "adasum"};
  return kNames[static_cast<int>(reduction)];
}

constexpr std::optional<Reduction> ReductionFromInt(int64_t value) {
  if (value < 0 || value >= kReductionCount) return std::nullopt;
  return static_cast<Reduction>(value);
}

// The operator that is applied to the elements; Adasum has none of its own and adds.
constexpr ReduceOp KernelOp(Reduction reduction) {
  constexpr ReduceOp kOps[kReductionCount] = {ReduceOp::kSum,     ReduceOp::kMin,    ReduceOp::kMax,
                                              ReduceOp::kProduct, ReduceOp::kSum,    ReduceOp::kBitAnd,
                                              ReduceOp::kBitOr,   ReduceOp::kBitXor, ReduceOp::kSum};
  return kOps[static_cast<int>(reduction)];
}

// Where a tensor's buffers are. Numeric values are part of the C ABI (ronda_memory) and of the protocol.
enum class Memory : uint8_t { kHost = 0, kCuda = 1 };
inline constexpr int kMemoryCount = 2;

constexpr const char* Name(Memory memory) { return memory == Memory::kHost ? "host" : "cuda"; }

constexpr std::optional<Memory> MemoryFromInt(int64_t value) {
  if (value < 0 || value >= kMemoryCount) return std::nullopt;
  return static_cast<Memory>(value);
}

// How long an operation may wait for a rank before that is reported, and before it fails. Infinite: for ever.
struct WaitLimits {
  absl::Duration warning = absl::Seconds(60);
  absl::Duration deadline = absl::Minutes(10);

  friend bool operator==(const WaitLimits&, const WaitLimits&) = default;
};

// How long a rank waits for the coordinator, which fails a stalled tensor itself at the deadline: this much later the
// other ranks conclude that it does not run.
inline absl::Duration AnswerDeadline(const WaitLimits& limits) {
  return limits.deadline + std::max(absl::Seconds(1), limits.deadline / 4);
}

// The format in which floating-point elements travel between ranks when they are reduced: the 16-bit formats apply to
// float32 and float64, the 8-bit ones (blocks with a scale each, see kernels/cpu/fp8.h) to the 16-bit types too. Other
// dtypes travel as they are. Numeric values are part of the C ABI (ronda_compression) and of the protocol.
enum class WireFormat : uint8_t { kNone = 0, kFloat16 = 1, kBfloat16 = 2, kFp8E4M3 = 3, kFp8E5M2 = 4 };
inline constexpr int kWireFormatCount = 5;

constexpr const char* Name(WireFormat wire) {
  constexpr const char* kNames[kWireFormatCount] = {"none", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2"};
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
