#ifndef RONDA_RUNTIME_COLLECTIVES_NCCL_PLAN_CACHE_H_
#define RONDA_RUNTIME_COLLECTIVES_NCCL_PLAN_CACHE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/nccl/wire_plan.h"

namespace ronda {

// The plan of a reduction of whole tensors, and what the kernels are told of each of its chunks.
struct ReductionPlan {
  // The tables of a chunk, made when they are first needed.
  struct Tables {
    bool has_packed = false;
    bool has_unpacked = false;
    std::vector<kernels::cuda::PackSegment> packed;
    std::vector<kernels::cuda::UnpackSegment> unpacked;
  };

  WirePlan wire;
  std::vector<Tables> chunks;

  // What it was made for.
  std::vector<Segment> segments;
  DType dtype = DType::kFloat32;
  WireFormat format = WireFormat::kNone;
  size_t vote_elements = 0;
};

// Plans of earlier reductions. A training repeats its buckets in every step, in the same order and most often with
// tensors at the same addresses: then nothing is laid out again. The plan behind the one that was found last is tried
// first, so a locked schedule finds each at once. If tensors have ever new addresses, the plan of others of the same
// sizes is taken over, and only its tables are made again.
//
// Thread-compatible.
class PlanCache {
 public:
  static constexpr size_t kMostPlans = 64;

  // `chunk_bytes`: as WirePlan::Lay.
  explicit PlanCache(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  // Valid until the next call. REQUIRES: delivery to all; the segments' pointers are those that will be used.
  ReductionPlan& Find(const ReduceCall& call, size_t vote_elements);

 private:
  ReductionPlan& Take(size_t i);

  const size_t chunk_bytes_;
  std::vector<std::unique_ptr<ReductionPlan>> plans_;
  size_t next_ = 0;  // is tried first
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_NCCL_PLAN_CACHE_H_
