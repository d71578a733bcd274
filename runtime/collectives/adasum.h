// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_ADASUM_H_
#define RONDA_RUNTIME_COLLECTIVES_ADASUM_H_

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cuda/calls.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// The memory and the arithmetic of an Adasum, on the host or on a device. The functions take the same arguments as the
// kernels (kernels/cuda/calls.h). Calls to AdasumOps and to the communicator take effect in order. On a device, a call
// may return before it has taken effect.
//
// Thread-compatible.
class AdasumOps {
 public:
  virtual ~AdasumOps() = default;

  struct Need {
    size_t bytes = 0;
    size_t pairs = 0;         // the maximum number of pairs in a call to Dots()
    absl::string_view label;  // the name of the Adasum, for messages
  };
  // Returns `bytes` bytes of uninitialised memory, aligned to 16 bytes and valid until Release(). Also allocates all
  // memory for later calls, because allocating might wait for the device, which by then may be waiting for other ranks
  // in this Adasum.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::byte*> Allocate(const Need& need) = 0;

  // Releases the memory from Allocate(), if any.
  virtual void Release() = 0;

  // REQUIRES, for Pack() and Unpack(): floating-point elements, no blocks, no votes and no skipped elements.
  virtual absl::Status Pack(const kernels::cuda::PackCall& call) = 0;
  virtual absl::Status Unpack(const kernels::cuda::UnpackCall& call) = 0;

  // Sets `call.scratch` itself. REQUIRES: at most Need::pairs pairs.
  virtual absl::Status Dots(const kernels::cuda::DotsCall& call) = 0;
  virtual absl::Status Combine(const kernels::cuda::CombineCall& call) = 0;
};

// Implements AdasumOps for tensors in host memory with the kernels of kernels/cpu. Each call is complete when it
// returns.
//
// Thread-compatible.
class HostAdasumOps : public AdasumOps {
 public:
  absl::StatusOr<std::byte*> Allocate(const Need& need) override;
  void Release() override { memory_.reset(); }
  absl::Status Pack(const kernels::cuda::PackCall& call) override;
  absl::Status Unpack(const kernels::cuda::UnpackCall& call) override;
  absl::Status Dots(const kernels::cuda::DotsCall& call) override;
  absl::Status Combine(const kernels::cuda::CombineCall& call) override;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

// How the tensors of an Adasum are cut into shards, one per member and tensor, and where the shards are in a buffer:
// first the first member's shards of all tensors, then the second member's, and so on. Each shard begins at a multiple
// of 16 bytes, on the wire and in every wider type, because device kernels are fastest at such addresses.
//
// A small value, cheap to copy. The segments must outlive it.
class AdasumLayout {
 public:
  AdasumLayout(absl::Span<const Segment> segments, int members, DType wire)
      : segments_(segments), members_(static_cast<size_t>(members)), unit_(kAccessBytes / SizeOf(wire)) {}

  // One member's shard of one tensor. A shard may be empty.
  struct Shard {
    size_t begin;  // element of the tensor
    size_t count;
    size_t offset;  // elements between the member's first shard and this one
  };

  // Calls visit(segment, shard) for each shard of a member.
  template <typename Visit>
  void ForEach(int member, const Visit& visit) const {
    size_t offset = 0;
    for (const Segment& segment : segments_) {
      const size_t begin = BeginOf(segment, member);
      const size_t count = BeginOf(segment, member + 1) - begin;
      visit(segment, Shard{.begin = begin, .count = count, .offset = offset});
      offset += RoomFor(count);
    }
  }

  // Returns the size of all shards of a member in the buffer, in elements.
  size_t Elements(int member) const {
    size_t elements = 0;
    for (const Segment& segment : segments_) {
      elements += RoomFor(BeginOf(segment, member + 1) - BeginOf(segment, member));
    }
    return elements;
  }

 private:
  static constexpr size_t kAccessBytes = 16;

  size_t BeginOf(const Segment& segment, int member) const {
    return segment.count * static_cast<size_t>(member) / members_;
  }
  size_t RoomFor(size_t count) const { return (count + unit_ - 1) / unit_ * unit_; }

  const absl::Span<const Segment> segments_;
  const size_t members_;
  const size_t unit_;  // elements
};

// Replaces each segment with the Adasum of the members' contributions. Averages gradients that agree, and adds
// orthogonal gradients, so that a training step has the right size for any number of ranks. (S. Maleki et al., "Scaling
// Distributed Training with Adaptive Summation", MLSys 2021; kernels/cpu/gradients.h has the formula for two
// gradients.)
//
// More than two gradients are combined pairwise, in a binary tree over the members in group order: (0, 1), (2, 3), and
// so on. If a level has an odd number of gradients, the last one moves to the next level unchanged. Each tensor is cut
// into one shard per member. An Alltoall sends each member all contributions to its shard. On each level of the tree,
// one Reduce adds the dot products of all shards, for all pairs and tensors. An Allgather distributes the result.
// Contributions are scaled, rounded to the wire format, and combined in fp32 (fp64 for float64). The result is scaled,
// rounded once to the wire format, and widened.
//
// The result has the same bits on all ranks. For tensors in host memory, the bits do not depend on the other tensors of
// the call, and are the same with every backend except the hierarchical ones. These add the dot products of each host
// first, so their results may differ in the last bits, mostly in float64. On devices, the dot products are added in a
// different order, and NCCL's sums depend on addresses, so the results only approximate those of the host.
//
// Every rank of the job must call this function, like the communicator's operations. Ignores `call.op`. There must be
// no ballot. `ops` must be for the same kind of memory as the communicator. Ranks outside the group do not use `ops`.
// On a device, returns without waiting for the device. Needs memory for three copies of the tensors.
//
// Errors: those of the communicator and of `ops`; INVALID_ARGUMENT for types that are not floating-point, for 8-bit
// wire formats, and for deliveries other than kAll; RESOURCE_EXHAUSTED.
absl::Status Adasum(Communicator* communicator, AdasumOps* ops, const ReduceCall& call);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_ADASUM_H_
