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

// The arguments that all calls share.
//
// Every rank of the job makes every call. A rank outside the call's group passes the same sizes, but no buffers, and
// its call returns at once. (A backend may stream all collectives of a job through one ring. The rank then uses the
// sizes to skip this call's data.) Arrays with one entry per rank follow the order of the group.
struct CallInfo {
  absl::string_view label;         // names the call in messages: "conv1/weight and 9 more"
  const Group* group = nullptr;    // the ranks that take part; nullptr: every rank of the job
  OpType op = OpType::kAllreduce;  // the operation that the client requested, for messages
  WaitLimits limits;               // apply to each wait for another rank's progress
  // If `ballot` is not null, the ranks also vote in this call. Only a call of all ranks of the job may have a vote: a
  // Barrier, or a Reduce that can carry the vote (VoteGoesWithData). If a backend cannot send the votes together with
  // the data of a Reduce, it sends the votes first.
  Ballot* ballot = nullptr;
};

// Returns whether the call has a vote that ended in a veto.
inline bool IsVetoed(const CallInfo& info) {
  return info.ballot != nullptr && info.ballot->result == Ballot::Result::kVetoed;
}

// The members: the ranks that take part in a call, as one rank sees them. The members are the ranks of the call's
// group. Without a group, they are all ranks of the job.
//
// A Members object is a small value that needs no allocation. The group must outlive the Members object.
class Members {
 public:
  Members(const CallInfo& info, RankId rank, int job_size)
      : group_(info.group),
        size_(group_ == nullptr ? job_size : group_->size()),
        self_(group_ == nullptr ? rank : group_->PositionOf(rank).value_or(kOutside)) {}

  int size() const { return size_; }
  RankId operator[](int position) const { return group_ == nullptr ? position : (*group_)[position]; }

  // Returns whether this rank takes part. If this rank is a member, self() is its position among the members.
  bool IncludeSelf() const { return self_ != kOutside; }
  int self() const { return self_; }

 private:
  static constexpr int kOutside = -1;

  const Group* group_;
  int size_;
  int self_;
};

// One tensor of a bucket. `input` and `output` must be equal (in place) or must not overlap. Neither `input` nor
// `output` needs any alignment.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements of the input; with 0 the pointers are not used
  // With ReduceCall::Delivery::kParts, `output` receives elements [part_begin, part_begin + part_count) of the result.
  // The parts of different ranks do not overlap and may be empty. With kParts, `output` must not overlap `input`.
  size_t part_begin = 0;
  size_t part_count = 0;
  // For error feedback: `count` elements, each with the sum of the earlier rounding errors in this rank's contributions
  // to the tensor. nullptr: no error feedback.
  float* residual = nullptr;
};

// Consecutive elements of a tensor.
struct PartRange {
  size_t begin = 0;
  size_t count = 0;
};

// A reduction of all segments, as if the segments were one tensor. The segments are never copied into one buffer.
struct ReduceCall {
  CallInfo info;
  absl::Span<const Segment> segments;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;
  ReduceOp op = ReduceOp::kSum;
  kernels::Scale prescale;   // of the input, before the input is rounded to the wire's format
  kernels::Scale postscale;  // of the result, before the result is rounded to the wire's format
  enum class Delivery : uint8_t {
    kAll,   // all ranks receive the whole result: an allreduce
    kParts  // each rank receives the part that its segments name: reduce, reducescatter
  } delivery = Delivery::kAll;
  // With kParts, returns the part of a segment that the member at `position` of the group receives. With the parts of
  // all members, some backends send fewer bytes. nullptr: each member knows only its own parts.
  using PartOf = absl::FunctionRef<PartRange(size_t segment, int position)>;
  const PartOf* part_of = nullptr;
  // How the segments lie in memory, the same on every rank. A backend may ignore it.
  BucketLayout layout = BucketLayout::kAny;
};

struct BroadcastCall {
  CallInfo info;
  void* data = nullptr;  // read on the root, written on the other members
  size_t bytes = 0;
  int root = 0;  // the root's position in the group
};

// Concatenates the members' inputs in the order of the group. The result goes to all members, or to one member.
struct AllgatherCall {
  CallInfo info;
  const void* input = nullptr;              // bytes_per_rank[own position] bytes
  void* output = nullptr;                   // sum of bytes_per_rank bytes; does not overlap `input`
  absl::Span<const size_t> bytes_per_rank;  // one entry per member, the same on every rank of the job
  std::optional<int> receiver;              // the position of the only member that receives; nullopt: all receive
};

// Every member sends one piece of its input to every member. The pieces lie one after the other in the buffers. The
// input is in the order of the receivers in the group, and the output in the order of the senders.
struct AlltoallCall {
  CallInfo info;
  const void* input = nullptr;
  void* output = nullptr;          // does not overlap `input`
  absl::Span<const size_t> bytes;  // [sender * members + receiver], the same on every rank of the job
};

// How a backend cuts data into chunks.
struct Tuning {
  size_t chunk_bytes = 0;  // 0: the backend chooses
};

// Moves and reduces tensors between the ranks of a job.
//
// Every rank makes the same sequence of calls with matching arguments. The negotiation makes sure that the calls match.
// Equal inputs give results with the same bits on all ranks and on every flat backend. The contributions are rounded to
// the wire's format and reduced in the order of the group (16-bit and 8-bit formats in fp32). The backend then scales
// the result, rounds it once to the wire's format, and widens it. A backend with two levels (hierarchical) first
// reduces on each host in this way, but does not scale the result. Then it reduces the hosts' results in the same way.
//
// Thread-compatible. Only the background thread and the progress thread make calls, and these two threads never make
// calls at the same time.
//
// A call blocks until this rank's output is complete and the caller may change the input. Errors: the job's first
// failure (a blocked call notices a dead peer); DEADLINE_EXCEEDED that names the late rank, the label, the progress of
// the transfer, and the late rank's last event. A wait longer than `limits.warning` is logged once. After an error the
// outputs are undefined and the communicator must not be used again.
//
// The communicator of a device (buffers in Memory::kCuda) does not block. A call puts its work on the communicator's
// stream, behind all earlier work, and returns. When the device has done the call's work, the outputs are complete, and
// the inputs may be changed. Arrays other than buffers, such as sizes, are read before the call returns. A call on a
// device has no ballot, because the ranks vote over the host's communicator before they make the call. The thread that
// watches the stream finds errors on the device.
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

  // The new values take effect with the next call. Every rank must call Tune with the same values at the same point in
  // the sequence of calls. If a backend cannot use a value, it rounds the value to one that it can use.
  virtual void Tune(const Tuning& tuning) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
