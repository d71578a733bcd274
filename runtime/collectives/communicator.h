#ifndef RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/cpu/scale.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"

namespace ronda {

// The result of a vote that a device counts. The device writes it into a word of the host's memory.
//
// Thread-safe, but for Reopen.
class OpenVote {
 public:
  enum class Outcome : uint8_t { kOpen, kCarriedOut, kVetoed };

  // `owner` keeps the memory of `decision` alive.
  OpenVote(std::shared_ptr<const void> owner, uint32_t* decision) : owner_(std::move(owner)), decision_(decision) {}

  // Once it is not kOpen it does not change.
  Outcome outcome() const {
    const uint32_t decision = std::atomic_ref<uint32_t>(*decision_).load(std::memory_order_acquire);
    if (decision == 0) return Outcome::kOpen;
    return decision == 1 ? Outcome::kCarriedOut : Outcome::kVetoed;
  }

  // The word into which the device writes 1 or 2 (kernels/cuda/calls.h).
  uint32_t* decision() const { return decision_; }

  // Makes the vote open again. REQUIRES: its outcome is known, and no other thread reads it.
  void Reopen() { std::atomic_ref<uint32_t>(*decision_).store(0, std::memory_order_release); }

 private:
  const std::shared_ptr<const void> owner_;
  uint32_t* const decision_;
};

// A vote on whether a call takes place, which travels ahead of its data: all ranks of the job must still want it. Under
// a veto no rank's output is touched, and the call, which every rank has made, has no effect but its place in the
// sequence of calls.
struct Ballot {
  enum class Vote : uint8_t { kApprove, kVeto };
  Vote own = Vote::kApprove;  // kVeto: the segments' pointers are not looked at
  // Called once, by the thread that makes the call, if it waits for the others longer than `limits.warning`.
  absl::FunctionRef<void()> when_late;
  // The same on every rank. kOpen: the votes are counted on the device, with the data; `open_vote` will tell.
  enum class Result : uint8_t { kCarriedOut, kVetoed, kOpen } result = Result::kCarriedOut;
  std::shared_ptr<const OpenVote> open_vote = nullptr;
};

// What all calls have in common.
//
// Every rank of the job makes every call, also those outside its group: they pass the same sizes, have no buffers, and
// return at once. (Backends that stream all collectives of a job through one place skip theirs so; others have nothing
// to do.) Arrays with an entry a rank are in the order of the group.
struct CallInfo {
  absl::string_view label;         // names the call in messages: "conv1/weight and 9 more"
  const Group* group = nullptr;    // who takes part; nullptr: every rank of the job
  OpType op = OpType::kAllreduce;  // what the client called it, for messages
  WaitLimits limits;               // of every wait for one rank's progress
  // Not null: the ranks vote first. For Reduce and Barrier of all ranks of the job only.
  Ballot* ballot = nullptr;
};

// Whether a vote on the call has been held and lost.
inline bool IsVetoed(const CallInfo& info) {
  return info.ballot != nullptr && info.ballot->result == Ballot::Result::kVetoed;
}

// Who takes part in a call, seen from one rank: the ranks of the call's group, or all of the job.
//
// A value that costs no allocation; the group must outlive it.
class Members {
 public:
  Members(const CallInfo& info, RankId rank, int job_size)
      : group_(info.group),
        size_(group_ == nullptr ? job_size : group_->size()),
        self_(group_ == nullptr ? rank : group_->PositionOf(rank).value_or(kOutside)) {}

  int size() const { return size_; }
  RankId operator[](int position) const { return group_ == nullptr ? position : (*group_)[position]; }

  // Whether this rank takes part, and its position then.
  bool IncludeSelf() const { return self_ != kOutside; }
  int self() const { return self_; }

 private:
  static constexpr int kOutside = -1;

  const Group* group_;
  int size_;
  int self_;
};

// One tensor of a bucket. `input` and `output` are equal (in place) or do not overlap; no alignment is needed.
struct Segment {
  const void* input = nullptr;
  void* output = nullptr;
  size_t count = 0;  // elements of the input; 0 is allowed, and then the pointers are not looked at
  // ReduceCall::Delivery::kParts: `output` receives elements [part_begin, part_begin + part_count) of the result, on
  // each rank another part, which overlaps no other's, and possibly none. It then does not overlap `input`.
  size_t part_begin = 0;
  size_t part_count = 0;
  // Error feedback: what earlier roundings of this tensor's contributions have lost, `count` elements; nullptr: none.
  float* residual = nullptr;
};

// A reduction over the logical concatenation of the segments: a bucket is never copied into one buffer.
struct ReduceCall {
  CallInfo info;
  absl::Span<const Segment> segments;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;
  ReduceOp op = ReduceOp::kSum;
  kernels::Scale prescale;   // of the input, before it is rounded to the wire's format
  kernels::Scale postscale;  // of the reduced value, before it is rounded to the wire's format
  enum class Delivery : uint8_t {
    kAll,   // everybody receives all of the result: an allreduce
    kParts  // each rank receives what its segments say: reduce, reducescatter
  } delivery = Delivery::kAll;
};

struct BroadcastCall {
  CallInfo info;
  void* data = nullptr;  // read on the root, written elsewhere
  size_t bytes = 0;
  int root = 0;  // a position in the group
};

// Concatenates the members' inputs, in the order of the group, into everybody's output, or one member's.
struct AllgatherCall {
  CallInfo info;
  const void* input = nullptr;              // bytes_per_rank[own position] bytes
  void* output = nullptr;                   // sum of bytes_per_rank bytes; does not overlap `input`
  absl::Span<const size_t> bytes_per_rank;  // one entry a member, the same on every rank of the job
  std::optional<int> receiver;              // the position of the only member that receives; nullopt: all do
};

// Every member sends a piece of its input to every member. Pieces lie one after the other, in the order of the group,
// in the input (by receiver) as in the output (by sender).
struct AlltoallCall {
  CallInfo info;
  const void* input = nullptr;
  void* output = nullptr;          // does not overlap `input`
  absl::Span<const size_t> bytes;  // [sender * members + receiver], the same on every rank of the job
};

// How a backend cuts up what it carries.
struct Tuning {
  size_t chunk_bytes = 0;  // 0: the backend's own choice
};

// Moves and reduces tensors between the ranks of a job.
//
// Every rank makes the same sequence of calls with matching arguments: the negotiation guarantees that. For the same
// inputs the results are bit-identical on all ranks, whatever the backend: contributions are rounded to the wire's
// format, reduced in the order of the group (16-bit and 8-bit formats in fp32), scaled, rounded once to the wire's
// format, and widened. Only a backend that works on two levels (hierarchical) does so for the ranks of each host first,
// without the last scaling, and then for the hosts' results.
//
// Thread-compatible: one thread at a time, the coordinator thread.
//
// Every call blocks until this rank's output is complete and its input may be changed. Errors: the job's first failure
// (a dead peer is noticed while blocked); DEADLINE_EXCEEDED that names the rank waited for, the label, how far the
// transfer got and what the late rank did last. A wait longer than `limits.warning` is logged, once. After an error the
// outputs are undefined and the communicator is not used again.
//
// A communicator of a device (Memory::kCuda) does not block: a call returns once its work is on the communicator's
// stream, after what was there before; the outputs are complete, and the inputs may be changed, when the device has got
// there. Arrays that are not buffers (sizes) are read before the call returns. A ballot then ends as kOpen, whatever
// its outcome, and the outputs are left alone if that is kVetoed. What goes wrong on the device is found by whoever
// watches the stream.
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

  // From the next call on. Every rank calls it with the same values at the same place in the sequence of calls. What a
  // backend cannot do it rounds to what it can.
  virtual void Tune(const Tuning& tuning) = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_COMMUNICATOR_H_
