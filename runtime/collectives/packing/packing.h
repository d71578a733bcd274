// SPDX-License-Identifier: Apache-2.0

// The tables of the kernels that pack the tensors of a reduction into a buffer, as a WirePlan lays them out, and unpack
// the result.
#ifndef RONDA_RUNTIME_COLLECTIVES_PACKING_PACKING_H_
#define RONDA_RUNTIME_COLLECTIVES_PACKING_PACKING_H_

#include <cstddef>
#include <vector>

#include "kernels/cuda/calls.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/packing/wire_plan.h"

namespace ronda {

using PackSegments = std::vector<kernels::cuda::PackSegment>;
using UnpackSegments = std::vector<kernels::cuda::UnpackSegment>;

// Returns whether no segment has elements.
bool IsEmpty(const ReduceCall& call);

inline bool DeliversAll(const ReduceCall& call) { return call.delivery == ReduceCall::Delivery::kAll; }

// Replaces `segments` by the pieces of a chunk, in all regions of the plan.
void FillPacked(const ReduceCall& call, const WirePlan& plan, const WirePlan::Chunk& chunk, PackSegments* segments);

// Appends those pieces of a chunk's region that this rank receives. The region begins `base` bytes behind the kernel's
// buffer, as far as the chunk's bytes are counted from the first region.
void AddUnpacked(const ReduceCall& call, const WirePlan& plan, const WirePlan::Chunk& chunk, int region, size_t base,
                 UnpackSegments* segments);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PACKING_PACKING_H_
