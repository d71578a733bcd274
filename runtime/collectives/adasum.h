#ifndef RONDA_RUNTIME_COLLECTIVES_ADASUM_H_
#define RONDA_RUNTIME_COLLECTIVES_ADASUM_H_

#include "absl/status/status.h"
#include "runtime/collectives/adasum_place.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// Replaces each segment by the Adasum of the members' contributions: gradients that agree are averaged, orthogonal ones
// added, so that the step stays right however many ranks there are. (S. Maleki et al., "Scaling Distributed Training
// with Adaptive Summation", MLSys 2021; the formula for two gradients is in kernels/cpu/adasum.h.)
//
// More than two are combined pairwise, as a binary tree over the members in the order of the group: (0, 1), (2, 3),
// ...; an odd last one goes up to the next level as it is. Each tensor is cut into one shard a member: an Alltoall
// brings all contributions to a shard together; on every level of the tree, one Reduce adds up the dot products of all
// shards, pairs and tensors; an Allgather hands out the result. Contributions are scaled and rounded to the wire's
// format, combined in fp32 (float64: in fp64), scaled, rounded once to the wire's format, and widened.
//
// The bits are the same on every rank. For tensors of the host they are the same on every backend too, and do not
// depend on what else is in the call. On devices the dot products are added up in another order, and NCCL's sums of
// them depend on where they lie: the results there are near the host's.
//
// Every rank of the job calls this, as it does the communicator's operations; `op` is not looked at, and there is no
// ballot. `place` is where the communicator's buffers are; it is not used by ranks outside of the group. On a device
// nothing here waits for it. Needs memory for three copies of the tensors.
//
// Errors: the communicator's and the place's; INVALID_ARGUMENT for dtypes that are not floating point, 8-bit wires and
// deliveries other than kAll; RESOURCE_EXHAUSTED.
absl::Status Adasum(Communicator* communicator, AdasumPlace* place, const ReduceCall& call);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_ADASUM_H_
