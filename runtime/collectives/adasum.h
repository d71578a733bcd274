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

// Where the tensors of an Adasum are: memory and arithmetic of the host, or of a device. Calls are described as to the
// kernels (kernels/cuda/calls.h), and happen in their order and that of the communicator's; on a device they need not
// have happened when they return.
//
// Thread-compatible.
class AdasumOps {
 public:
  virtual ~AdasumOps() = default;

  struct Need {
    size_t bytes = 0;
    size_t pairs = 0;         // at most, of a call of Dots
    absl::string_view label;  // what the Adasum is called
  };
  // Uninitialised memory of that many bytes, aligned to 16, until Release; and what the place itself needs. No later
  // call takes any: what it would wait for may be other ranks' part in this Adasum.
  // Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<std::byte*> Allocate(const Need& need) = 0;

  // No call that uses the memory comes any more. Does nothing if there is none.
  virtual void Release() = 0;

  // REQUIRES of the conversions: floating point, no blocks, no votes, nothing skipped.
  virtual absl::Status Pack(const kernels::cuda::PackCall& call) = 0;
  virtual absl::Status Unpack(const kernels::cuda::UnpackCall& call) = 0;

  // `call.scratch` is the place's own affair, and not looked at.
  // REQUIRES: no more pairs than were said to come.
  virtual absl::Status Dots(const kernels::cuda::DotsCall& call) = 0;
  virtual absl::Status Combine(const kernels::cuda::CombineCall& call) = 0;
};

// The host: kernels/cpu. Everything has happened when a call returns.
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

// How the tensors of an Adasum are cut into shards, one a member, and where these lie in a buffer: those of the first
// member, tensor by tensor, then those of the second. On the wire, and in any wider type, each begins at a multiple of
// 16 bytes, where the kernels of devices access it best.
//
// A value; the segments must outlive it.
class AdasumLayout {
 public:
  AdasumLayout(absl::Span<const Segment> segments, int members, DType wire)
      : segments_(segments), members_(static_cast<size_t>(members)), unit_(kAccessBytes / SizeOf(wire)) {}

  // A member's share of one tensor; may be empty.
  struct Shard {
    size_t begin;  // element of the tensor
    size_t count;
    size_t place;  // elements from the member's first shard to this one
  };

  // Calls visit(segment, shard) for the shards of a member.
  template <typename Visit>
  void ForEach(int member, const Visit& visit) const {
    size_t place = 0;
    for (const Segment& segment : segments_) {
      const size_t begin = BeginOf(segment, member);
      const size_t count = BeginOf(segment, member + 1) - begin;
      visit(segment, Shard{.begin = begin, .count = count, .place = place});
      place += RoomFor(count);
    }
  }

  // Elements that the shards of a member take up.
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
absl::Status Adasum(Communicator* communicator, AdasumOps* place, const ReduceCall& call);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_ADASUM_H_
