// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_PACKING_PLAN_CACHE_H_
#define RONDA_RUNTIME_COLLECTIVES_PACKING_PLAN_CACHE_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/packing/wire_plan.h"

namespace ronda {

// The plan of a reduction in which all members receive whole tensors, with the kernels' tables for each chunk.
struct ReductionPlan {
  // The kernels' tables for a chunk, built on first use.
  struct Tables {
    bool has_packed = false;
    bool has_unpacked = false;
    std::vector<kernels::cuda::PackSegment> packed;
    std::vector<kernels::cuda::UnpackSegment> unpacked;
  };

  WirePlan wire;
  std::vector<Tables> chunks;

  // The reduction that the plan is for.
  std::vector<Segment> segments;
  DType dtype = DType::kFloat32;
  WireFormat format = WireFormat::kNone;
};

// Caches plans of earlier reductions. A training loop repeats its buckets in every step, in the same order and usually
// with tensors at the same addresses, and then reuses the plans. The cache first tries the plan that follows the last
// returned one, so a locked schedule finds each plan at once. If the cache is full and the tensors have new addresses,
// it reuses the plan of other tensors of the same sizes, and rebuilds only the tables.
//
// Thread-compatible.
class PlanCache {
 public:
  static constexpr size_t kMostPlans = 64;

  // `chunk_bytes`: as in WirePlan::Lay().
  explicit PlanCache(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  // Returns a plan, valid until the next call. REQUIRES: the call delivers everything to all ranks, and the pointers in
  // its segments will not change.
  ReductionPlan& Find(const ReduceCall& call);

 private:
  ReductionPlan& Use(size_t i);

  const size_t chunk_bytes_;
  std::vector<std::unique_ptr<ReductionPlan>> plans_;
  size_t next_ = 0;  // to be tried first
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PACKING_PLAN_CACHE_H_
