#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_WIRE_PLAN_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_WIRE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/nccl_library.h"
#include "runtime/collectives/reduce_layout.h"

namespace ronda {

// NCCL's name of a type; nullopt: NCCL lacks it.
std::optional<NcclDataType> NcclTypeOf(DType dtype);

// The order in which floating-point numbers are added up and multiplied. kOfNccl: where NCCL can, as NCCL does it: in
// an order of its own, with 16-bit sums rounded after every step. kOfRanks: in the order of the ranks, in float32 for
// smaller types, rounded once: the same bits on every backend.
enum class SumOrder : uint8_t { kOfNccl, kOfRanks };

// NCCL's name of an operator if NCCL is to reduce this wire with it: its result is Ronda's, exactly or but for the
// order of roundings. NCCL's minima and maxima of floating-point numbers drop NaN, and products of 16-bit types would
// lose too much to its roundings.
std::optional<NcclRedOp> NcclOpOf(const WireLayout& layout, ReduceOp op, SumOrder order);

// The factors of a reduction before and after NCCL's part.
struct WireFactors {
  kernels::Scale before;
  kernels::Scale after;
};
// Sums of 16-bit types are multiplied by both factors before NCCL adds them up: the average of numbers cannot leave the
// range of a type that has their sum leave it, and there is no rounding for a factor behind the sum.
WireFactors FactorsOf(const WireLayout& layout, const ReduceCall& call);

// The offsets of a reduction's tensors in the fusion buffer: one after the other behind the votes. Each begins a
// granule at an address that suits the device's kernels.
//
// Made anew for every call; keeps its memory.
class WirePlan {
 public:
  // `vote_elements`: elements of the wire in front of the tensors.
  void Lay(const ReduceCall& call, size_t vote_elements);

  const WireLayout& layout() const { return layout_; }
  kernels::cuda::Wire wire() const;

  // A multiple of unit().
  size_t bytes() const { return bytes_; }
  // Tensors begin, and shards of the buffer may be cut, at multiples of this: of whole granules and of 16 bytes.
  size_t unit() const { return unit_; }

  // The offset of the first granule of tensor i.
  size_t OffsetOf(size_t i) const { return offsets_[i]; }

  // Shard `i` of `n`. All have the same size, except that the last ones may be short or empty.
  struct Range {
    size_t begin;
    size_t bytes;
  };
  Range Shard(int i, int n) const;
  size_t ShardBytes(int n) const;

 private:
  WireLayout layout_ = {};
  size_t unit_ = 1;
  size_t bytes_ = 0;
  std::vector<size_t> offsets_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_WIRE_PLAN_H_
