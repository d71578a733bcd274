// SPDX-License-Identifier: Apache-2.0

// Builds the tables of the kernels that pack a reduction's tensors into a buffer, as a WirePlan lays them out, and
// unpack the result.
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

// Returns whether all segments are empty.
bool IsEmpty(const ReduceCall& call);

inline bool DeliversAll(const ReduceCall& call) { return call.delivery == ReduceCall::Delivery::kAll; }

// Replaces `segments` with the pieces of a chunk, in all regions of the plan.
void FillPacked(const ReduceCall& call, const WirePlan& plan, const WirePlan::Chunk& chunk, PackSegments* segments);

// Appends those pieces of a chunk's region that this rank receives. `base` is the offset of the chunk's first byte in
// the kernel's buffer.
void AddUnpacked(const ReduceCall& call, const WirePlan& plan, const WirePlan::Chunk& chunk, int region, size_t base,
                 UnpackSegments* segments);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_PACKING_PACKING_H_
