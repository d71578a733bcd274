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

// NCCL's name of a type; nullopt: it has none.
std::optional<NcclDataType> NcclTypeOf(DType dtype);

// NCCL's name of an operator, if it has one that, on this wire, gives what Ronda's gives: exactly or, for sums and
// products of float32 and float64, rounded in another order. Its minima and maxima of floating-point numbers drop NaN.
std::optional<NcclRedOp> NcclOpOf(const WireLayout& layout, ReduceOp op);

// Where the tensors of a reduction lie in the fusion buffer: one after the other behind the votes, each where the
// device's kernels can access it best, and a granule begins.
//
// Made anew for every call; keeps its memory.
class WirePlan {
 public:
  // `vote_elements`: elements of the wire in front.
  void Lay(const ReduceCall& call, size_t vote_elements);

  const WireLayout& layout() const { return layout_; }
  kernels::cuda::Wire wire() const;

  // A multiple of unit().
  size_t bytes() const { return bytes_; }
  // What every tensor begins at a multiple of, and shards of the buffer may be cut at: of granules, and of 16 bytes.
  size_t unit() const { return unit_; }

  // To the first granule of tensor i.
  size_t OffsetOf(size_t i) const { return offsets_[i]; }

  // Shard `i` of `n`, all of the same size but for the last ones, which may be short or empty.
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
