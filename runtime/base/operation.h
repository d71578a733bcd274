// SPDX-License-Identifier: Apache-2.0

// Tables of all operations, reductions and wire formats, with their properties. The runtime, the client and the
// benchmarks look up operation-specific behaviour in these tables.
#ifndef RONDA_RUNTIME_BASE_OPERATION_H_
#define RONDA_RUNTIME_BASE_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

#include "kernels/dtype.h"

namespace ronda {

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
  kSendRecv = 9,           // one tensor from one rank to another
  kJoin = 10,              // the rank takes no part in anything until all ranks have joined
  kAddProcessSet = 11,     // by all ranks of the job
  kRemoveProcessSet = 12,  // by all ranks of the job, or by the set's members if they created it
  kCreateProcessSet = 13,  // by the ranks of the set
};

// Ranks of a process set that have a special role in an operation.
enum class Side : uint8_t { kNone, kMembers, kRoot, kReceiver };

// How a tensor's first dimension may differ between ranks. All other dimensions are the same on every rank.
enum class FirstDimension : uint8_t {
  kShared,    // the same on every rank
  kGathered,  // each rank has its own value, and all ranks learn all values
  kLocal,     // each rank has its own value, and no other rank learns it
  kOfRoot,    // the root's value is used; the other ranks' values are ignored
};

// The properties of an operation. The default values are right for most operations.
struct OperationTraits {
  OpType op;
  const char* name;
  // The ranks that pass an input, that pass an output, and that decide how many rows each rank gets.
  Side input = Side::kNone;
  Side output = Side::kNone;
  Side splits = Side::kNone;
  FirstDimension first_dimension = FirstDimension::kShared;
  const char* root = nullptr;         // the word for TensorRequest::root in messages; nullptr: the operation has none
  bool by_rows = false;               // splits or joins tensors by rows: not for scalars; Ronda allocates the result
  bool reduces = false;               // has a Reduction, scales, a WireFormat, and detects overflow
  bool fuses = false;                 // several tensors travel as one collective
  bool runs_without_joined = false;   // works without ranks that have joined, unless its root is one of them
  bool membership = false;            // changes which ranks take part in operations; moves no data, is not cached
  bool changes_process_sets = false;  // adds or removes a set
  bool adds_process_set = false;      // adds TensorRequest::members as a set
  bool by_new_members = false;        // only TensorRequest::members take part
  bool schedulable = true;            // can be part of a locked schedule, which all ranks carry out together

  constexpr bool has_root() const { return root != nullptr; }
  constexpr bool has_tensor() const { return input != Side::kNone || output != Side::kNone; }
  constexpr bool cached() const { return !membership; }  // responses to it are kept in the response cache
};

inline constexpr OperationTraits kOperations[] = {
    {.op = OpType::kAllreduce,
     .name = "allreduce",
     .input = Side::kMembers,
     .output = Side::kMembers,
     .reduces = true,
     .fuses = true,
     .runs_without_joined = true},
    {.op = OpType::kAllgather,
     .name = "allgather",
     .input = Side::kMembers,
     .first_dimension = FirstDimension::kGathered,
     .by_rows = true,
     .runs_without_joined = true},
    {.op = OpType::kBroadcast,
     .name = "broadcast",
     .output = Side::kMembers,
     .root = "root",
     .runs_without_joined = true},
    {.op = OpType::kBarrier, .name = "barrier", .runs_without_joined = true},
    {.op = OpType::kReduce,
     .name = "reduce",
     .input = Side::kMembers,
     .output = Side::kRoot,
     .root = "root",
     .reduces = true,
     .runs_without_joined = true},
    {.op = OpType::kReduceScatter,
     .name = "reducescatter",
     .input = Side::kMembers,
     .by_rows = true,
     .reduces = true,
     .fuses = true},
    {.op = OpType::kGather,
     .name = "gather",
     .input = Side::kMembers,
     .first_dimension = FirstDimension::kGathered,
     .root = "root",
     .by_rows = true,
     .runs_without_joined = true},
    {.op = OpType::kScatter,
     .name = "scatter",
     .input = Side::kRoot,
     .splits = Side::kRoot,
     .first_dimension = FirstDimension::kOfRoot,
     .root = "root",
     .by_rows = true},
    {.op = OpType::kAlltoall,
     .name = "alltoall",
     .input = Side::kMembers,
     .splits = Side::kMembers,
     .first_dimension = FirstDimension::kLocal,
     .by_rows = true},
    {.op = OpType::kSendRecv,
     .name = "send/recv",
     .input = Side::kRoot,
     .output = Side::kReceiver,
     .root = "sender",
     .schedulable = false},
    {.op = OpType::kJoin, .name = "join", .membership = true, .schedulable = false},
    {.op = OpType::kAddProcessSet,
     .name = "add_process_set",
     .membership = true,
     .changes_process_sets = true,
     .adds_process_set = true,
     .schedulable = false},
    {.op = OpType::kRemoveProcessSet,
     .name = "remove_process_set",
     .membership = true,
     .changes_process_sets = true,
     .schedulable = false},
    {.op = OpType::kCreateProcessSet,
     .name = "create_process_set",
     .membership = true,
     .changes_process_sets = true,
     .adds_process_set = true,
     .by_new_members = true,
     .schedulable = false},
};
inline constexpr int kOpTypeCount = static_cast<int>(std::size(kOperations));

// A reduction that a client requests. Numeric values are part of the C ABI (ronda_reduce_op) and of the protocol.
enum class Reduction : uint8_t {
  kSum = 0,
  kMin = 1,
  kMax = 2,
  kProduct = 3,
  kAverage = 4,  // the sum divided by the number of ranks that take part
  kBitAnd = 5,
  kBitOr = 6,
  kBitXor = 7,
  kAdasum = 8,  // see runtime/collectives/adasum.h
};

struct ReductionTraits {
  Reduction op;
  const char* name;
  ReduceOp kernel;  // applied to the elements; Adasum uses the sum
  enum class DTypes : uint8_t { kAll, kNotBool, kNotFloatingPoint, kFloatingPoint } dtypes = DTypes::kAll;
  const char* instead = "";  // advice to a caller that requests the reduction for another dtype
  bool adds = false;         // error feedback corrects only the rounding of sums
};

inline constexpr ReductionTraits kReductions[] = {
    {.op = Reduction::kSum, .name = "sum", .kernel = ReduceOp::kSum, .adds = true},
    {.op = Reduction::kMin, .name = "min", .kernel = ReduceOp::kMin},
    {.op = Reduction::kMax, .name = "max", .kernel = ReduceOp::kMax},
    {.op = Reduction::kProduct, .name = "product", .kernel = ReduceOp::kProduct},
    {.op = Reduction::kAverage,
     .name = "average",
     .kernel = ReduceOp::kSum,
     .dtypes = ReductionTraits::DTypes::kNotBool,
     .instead = "use sum (logical or) or product (logical and)",
     .adds = true},
    {.op = Reduction::kBitAnd,
     .name = "band",
     .kernel = ReduceOp::kBitAnd,
     .dtypes = ReductionTraits::DTypes::kNotFloatingPoint,
     .instead = "use an integer type or bool"},
    {.op = Reduction::kBitOr,
     .name = "bor",
     .kernel = ReduceOp::kBitOr,
     .dtypes = ReductionTraits::DTypes::kNotFloatingPoint,
     .instead = "use an integer type or bool"},
    {.op = Reduction::kBitXor,
     .name = "bxor",
     .kernel = ReduceOp::kBitXor,
     .dtypes = ReductionTraits::DTypes::kNotFloatingPoint,
     .instead = "use an integer type or bool"},
    {.op = Reduction::kAdasum,
     .name = "adasum",
     .kernel = ReduceOp::kSum,
     .dtypes = ReductionTraits::DTypes::kFloatingPoint,
     .instead = "use a floating-point type"},
};
inline constexpr int kReductionCount = static_cast<int>(std::size(kReductions));

// The format in which reductions send floating-point elements between ranks. Elements of dtypes that the format does
// not cover travel unchanged. Numeric values are part of the C ABI (ronda_compression) and of the protocol.
enum class WireFormat : uint8_t { kNone = 0, kFloat16 = 1, kBfloat16 = 2, kFp8E4M3 = 3, kFp8E5M2 = 4 };

struct WireFormatTraits {
  WireFormat op;
  const char* name;
  // kDType: float32 and float64 elements travel as `dtype`. kBlocks: all floating-point elements travel in blocks of
  // 8-bit codes, and each block has a scale (kernels/cpu/fp8.h).
  enum class Encoding : uint8_t { kAsIs, kDType, kBlocks } encoding;
  DType dtype = DType::kFloat32;
};

inline constexpr WireFormatTraits kWireFormats[] = {
    {.op = WireFormat::kNone, .name = "none", .encoding = WireFormatTraits::Encoding::kAsIs},
    {.op = WireFormat::kFloat16,
     .name = "fp16",
     .encoding = WireFormatTraits::Encoding::kDType,
     .dtype = DType::kFloat16},
    {.op = WireFormat::kBfloat16,
     .name = "bf16",
     .encoding = WireFormatTraits::Encoding::kDType,
     .dtype = DType::kBfloat16},
    {.op = WireFormat::kFp8E4M3, .name = "fp8_e4m3", .encoding = WireFormatTraits::Encoding::kBlocks},
    {.op = WireFormat::kFp8E5M2, .name = "fp8_e5m2", .encoding = WireFormatTraits::Encoding::kBlocks},
};
inline constexpr int kWireFormatCount = static_cast<int>(std::size(kWireFormats));

// Returns whether row i of a table describes enum value i.
template <typename Row, size_t n>
constexpr bool InOrder(const Row (&rows)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (static_cast<size_t>(rows[i].op) != i) return false;
  }
  return true;
}
static_assert(InOrder(kOperations) && InOrder(kReductions) && InOrder(kWireFormats));

constexpr const OperationTraits& TraitsOf(OpType op) { return kOperations[static_cast<int>(op)]; }
constexpr const ReductionTraits& TraitsOf(Reduction reduction) { return kReductions[static_cast<int>(reduction)]; }
constexpr const WireFormatTraits& TraitsOf(WireFormat wire) { return kWireFormats[static_cast<int>(wire)]; }

constexpr const char* Name(OpType op) { return TraitsOf(op).name; }
constexpr const char* Name(Reduction reduction) { return TraitsOf(reduction).name; }
constexpr const char* Name(WireFormat wire) { return TraitsOf(wire).name; }

// These functions check a number that came from a client or a peer. They return nullopt if the enum has no such value.
constexpr std::optional<OpType> OpTypeFromInt(int64_t value) {
  if (value < 0 || value >= kOpTypeCount) return std::nullopt;
  return static_cast<OpType>(value);
}
constexpr std::optional<Reduction> ReductionFromInt(int64_t value) {
  if (value < 0 || value >= kReductionCount) return std::nullopt;
  return static_cast<Reduction>(value);
}
constexpr std::optional<WireFormat> WireFormatFromInt(int64_t value) {
  if (value < 0 || value >= kWireFormatCount) return std::nullopt;
  return static_cast<WireFormat>(value);
}

// Returns whether `reduction` is defined on elements of `dtype`.
constexpr bool Supports(Reduction reduction, DType dtype) {
  switch (TraitsOf(reduction).dtypes) {
    case ReductionTraits::DTypes::kAll:
      return true;
    case ReductionTraits::DTypes::kNotBool:
      return dtype != DType::kBool;
    case ReductionTraits::DTypes::kNotFloatingPoint:
      return !IsFloatingPoint(dtype);
    case ReductionTraits::DTypes::kFloatingPoint:
      return IsFloatingPoint(dtype);
  }
  return false;
}

// Returns whether elements of `dtype` are rounded to a narrower format when they travel as `wire`.
constexpr bool IsNarrowed(DType dtype, WireFormat wire) {
  switch (TraitsOf(wire).encoding) {
    case WireFormatTraits::Encoding::kAsIs:
      return false;
    case WireFormatTraits::Encoding::kDType:
      return dtype == DType::kFloat32 || dtype == DType::kFloat64;
    case WireFormatTraits::Encoding::kBlocks:
      return IsFloatingPoint(dtype);
  }
  return false;
}

// Returns the dtype in which elements of `dtype` travel in the format `wire`. If the elements travel in blocks, returns
// the dtype from which the blocks are made.
constexpr DType WireDType(DType dtype, WireFormat wire) {
  const bool as_dtype = TraitsOf(wire).encoding == WireFormatTraits::Encoding::kDType;
  return as_dtype && IsNarrowed(dtype, wire) ? TraitsOf(wire).dtype : dtype;
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_OPERATION_H_
