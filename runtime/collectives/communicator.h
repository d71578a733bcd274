// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/dtype.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/step/vote.h"

namespace ronda {

// The arguments common to all calls.
//
// Every rank of the job makes every call. A rank outside the call's group passes the same sizes, but no buffers, and
// its call returns at once. (If a backend streams all of a job's collectives through one ring, the rank needs the sizes
// to skip this call's data.) Arrays with one entry per rank are in group order.
struct CallInfo {
  absl::string_view label;         // names the call in messages: "conv1/weight and 9 more"
  const Group* group = nullptr;    // the ranks that take part; nullptr: every rank of the job
  OpType op = OpType::kAllreduce;  // the operation that the client requested, for messages
  WaitLimits limits;               // for each wait for another rank's progress
  // If `ballot` is not null, the ranks also vote in this call. Only calls of all ranks of the job may have a vote: a
  // Barrier, or a Reduce that can carry the vote (VoteGoesWithData). A backend that cannot send votes together with a
  // Reduce's data sends them first.
  Ballot* ballot = nullptr;
};

// Returns whether the call had a vote that ended in a veto.
inline bool IsVetoed(const CallInfo& info) {
  return info.ballot != nullptr && info.ballot->result == Ballot::Result::kVetoed;
}

// The members of a call, as one rank sees them: the ranks of the call's group or, without a group, all ranks of the
// job.
//
// A small value that allocates no memory. The group must outlive it.
class Members {
 public:
  Members(const CallInfo& info, RankId rank, int job_size)
      : group_(info.group),
        size_(group_ == nullptr ? job_size : group_->size()),
        self_(group_ == nullptr ? rank : group_->PositionOf(rank).value_or(kOutside)) {}

  int size() const { return size_; }
  RankId operator[](int position) const { return group_ == nullptr ? position : (*group_)[position]; }

  // Returns whether this rank is a member. If so, self() is its position among the members.
  bool IncludeSelf() const { return self_ != kOutside; }
  int self() const { return self_; }

 private:
  static constexpr int kOutside = -1;

  const Group* group_;
  int size_;
  int self_;
};

// One tensor of a bucket. `input` and `output` must be equal (in place) or must not overlap. They need no alignment.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements of the input; if 0, the pointers are not used
  // With ReduceCall::Delivery::kParts, `output` receives elements [part_begin, part_begin + part_count) of the result.
  // The parts of different ranks do not overlap and may be empty. With kParts, `output` must not overlap `input`.
  size_t part_begin = 0;
  size_t part_count = 0;
  // For error feedback: for each of the `count` elements, the accumulated rounding error of this rank's earlier
  // contributions. nullptr: no error feedback.
  float* residual = nullptr;
};

// Consecutive elements of a tensor.
struct PartRange {
  size_t begin = 0;
  size_t count = 0;
};

// A reduction of all segments as one tensor, without copying them into one buffer.
struct ReduceCall {
  CallInfo info;
  absl::Span<const Segment> segments;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;
  ReduceOp op = ReduceOp::kSum;
  kernels::Scale prescale;   // for the input, before it is rounded to the wire format
  kernels::Scale postscale;  // for the result, before it is rounded to the wire format
  enum class Delivery : uint8_t {
    kAll,   // all ranks receive the whole result: an allreduce
    kParts  // each rank receives the part that its segments name: reduce, reducescatter
  } delivery = Delivery::kAll;
  // With kParts, returns the part of a segment that the member at `position` in the group receives. Some backends send
  // fewer bytes if they know all members' parts. nullptr: each member knows only its own.
  using PartOf = absl::FunctionRef<PartRange(size_t segment, int position)>;
  const PartOf* part_of = nullptr;
  // How the segments are arranged in memory, the same on every rank. Backends may ignore it.
  BucketLayout layout = BucketLayout::kAny;
};

struct BroadcastCall {
  CallInfo info;
  void* data = nullptr;  // read on the root, written on the other members
  size_t bytes = 0;
  int root = 0;  // the root's position in the group
};

// Concatenates the members' inputs in group order, and delivers the result to all members, or to one.
struct AllgatherCall {
  CallInfo info;
  const void* input = nullptr;              // bytes_per_rank[own position] bytes
  void* output = nullptr;                   // sum of bytes_per_rank bytes; does not overlap `input`
  absl::Span<const size_t> bytes_per_rank;  // one entry per member, the same on every rank of the job
  std::optional<int> receiver;              // the position of the only member that receives the result; nullopt: all do
};

// Every member sends one piece of its input to every member. The pieces are consecutive: in the input in the order of
// the receivers, and in the output in the order of the senders.
struct AlltoallCall {
  CallInfo info;
  const void* input = nullptr;
  void* output = nullptr;          // does not overlap `input`
  absl::Span<const size_t> bytes;  // [sender * members + receiver], the same on every rank of the job
};

// Settings of a backend that can change during a job.
struct Tuning {
  size_t chunk_bytes = 0;  // 0: the backend chooses
};

// Moves and reduces tensors between the ranks of a job.
//
// Every rank makes the same sequence of calls with matching arguments, which the negotiation ensures. Equal inputs give
// results with the same bits on all ranks and with every flat backend: contributions are rounded to the wire format and
// reduced in group order (16-bit and 8-bit formats in fp32), and the result is scaled, rounded once to the wire format,
// and widened. A backend with two levels (hierarchical) first reduces on each host in this way, but without scaling,
// and then reduces the hosts' results in the same way.
//
// Thread-compatible. Only the background thread and the progress thread make calls, never at the same time.
//
// A call blocks until this rank's output is complete and the caller may change the input. A wait longer than
// `limits.warning` is logged once. Errors: the job's first failure (a blocked call detects a dead peer);
// DEADLINE_EXCEEDED that names the late rank, the label, the progress of the transfer, and the late rank's last event.
// After an error, the outputs are undefined, and the communicator must not be used again.
//
// A device communicator (buffers in Memory::kCuda) does not block. A call enqueues its work on the communicator's
// stream, after all earlier work, and returns. When the device has completed that work, the outputs are complete, and
// the inputs may be changed. Arrays other than buffers, such as sizes, are read before the call returns. Device calls
// have no ballot, because the ranks vote through the host communicator before they make the call. The thread that
// watches the stream detects device errors.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual RankId rank() const = 0;
  virtual int size() const = 0;  // ranks of the job

  virtual absl::Status Reduce(const ReduceCall& call) = 0;
  virtual absl::Status Broadcast(const BroadcastCall& call) = 0;
  virtual absl::Status Allgather(const AllgatherCall& call) = 0;
  virtual absl::Status Alltoall(const AlltoallCall& call) = 0;
  virtual absl::Status Barrier(const CallInfo& info) = 0;

  // The new values take effect with the next call. Every rank must call Tune() with the same values at the same point
  // in the sequence of calls. A backend that cannot use a value rounds it to one that it can use.
  virtual void Tune(const Tuning& tuning) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
