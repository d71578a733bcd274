// SPDX-License-Identifier: Apache-2.0

// The ranks' vote on whether to carry out a bucket of the locked schedule, and the flags that travel with the vote.
#ifndef RONDA_RUNTIME_STEP_VOTE_H_
#define RONDA_RUNTIME_STEP_VOTE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "runtime/base/operation.h"
#include "runtime/base/types.h"
#include "runtime/step/flags.h"

namespace ronda {

// How the tensors of a bucket lie in memory. kAdjacent: on every rank, the results replace the inputs, and the tensors
// lie one after another in the order of the bucket, without gaps. If the ranks have memory that they have registered
// together, the tensors also lie in it, at the same offset on every rank. kMoved: they lie in this memory, but the
// ranks have not compared all offsets yet. kAny: none of these.
enum class BucketLayout : uint8_t { kAny, kMoved, kAdjacent };

// A vote on whether a call is carried out. The vote travels before the call's data or with it. The call is carried out
// if all ranks of the job approve. If a rank vetoes, no rank's output is written. The call then has no effect, except
// that it counts in the sequence of calls, because every rank has made it.
//
// A backend sends a rank's vote and flags as one word. It combines the words of all ranks by OR, and passes the result
// to Decide(). The order does not matter, and a word may be combined several times.
struct Ballot {
  enum class Vote : uint8_t { kApprove, kVeto };
  Vote own = Vote::kApprove;                     // kVeto: the segments' pointers are not used
  Flags own_flags = {};                          // of a rank that approves
  BucketLayout own_layout = BucketLayout::kAny;  // of this rank's tensors, if it approves
  // Called at most once, by the thread that makes the call, when it has waited for the other ranks longer than
  // `limits.warning`.
  absl::FunctionRef<void()> when_late;
  // The result of the vote, which is the same on every rank. After a veto no flag counts as submitted. The layout is
  // the smallest of all ranks.
  enum class Result : uint8_t { kCarriedOut, kVetoed } result = Result::kCarriedOut;
  Flags flags = {};
  BucketLayout layout = BucketLayout::kAny;

  // The number of bits in a word: one bit for the veto, two bits for each flag (whether it is missing, and whether it
  // is raised), and one bit each for tensors that are not adjacent, and that have moved.
  static constexpr int kWordBits = 1 + 2 * kFlagCount + 2;

  constexpr uint8_t word() const {
    if (own == Vote::kVeto) return kVetoBit;
    return static_cast<uint8_t>(
        (kAllFlags & ~own_flags.submitted) << kMissingShift | (own_flags.submitted & own_flags.raised) << kRaisedShift |
        (own_layout == BucketLayout::kAny ? kApartBit : 0) | (own_layout == BucketLayout::kMoved ? kMovedBit : 0));
  }

  // Sets the result from the combined word of all ranks.
  constexpr void Decide(uint8_t words) {
    result = (words & kVetoBit) != 0 ? Result::kVetoed : Result::kCarriedOut;
    flags = {};
    layout = BucketLayout::kAny;
    if (result == Result::kVetoed) return;
    if ((words & kApartBit) == 0) {
      layout = (words & kMovedBit) == 0 ? BucketLayout::kAdjacent : BucketLayout::kMoved;
    }
    flags.submitted = static_cast<uint8_t>(kAllFlags & ~(words >> kMissingShift));
    flags.raised = static_cast<uint8_t>(flags.submitted & words >> kRaisedShift);
  }

 private:
  static constexpr uint8_t kVetoBit = 1;
  static constexpr int kMissingShift = 1;
  static constexpr int kRaisedShift = kMissingShift + kFlagCount;
  static constexpr uint8_t kApartBit = 1 << (kRaisedShift + kFlagCount);
  static constexpr uint8_t kMovedBit = kApartBit << 1;
  static constexpr uint8_t kAllFlags = (1 << kFlagCount) - 1;
  static_assert(kWordBits <= 8);
};

// The properties of a bucket on which VoteGoesWithData depends.
struct VotedBucket {
  OpType op = OpType::kAllreduce;
  Memory memory = Memory::kHost;
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;
};

// Returns whether the vote travels with the bucket's data. It does so only in a reduction that takes one round of the
// host communicator. For all other buckets, the ranks first vote in a barrier, because a rank could not undo its part
// of the bucket after a veto:
//  - Other operations write their outputs as the data arrives, and Adasum takes several rounds.
//  - A GPU carries out all work that has been enqueued.
//  - If a tensor has a residual, rounding the tensor to the wire format changes the residual. Only the rank itself
//    knows whether its tensor has a residual.
constexpr bool VoteGoesWithData(const VotedBucket& bucket) {
  return TraitsOf(bucket.op).reduces && bucket.reduction != Reduction::kAdasum && bucket.memory == Memory::kHost &&
         !IsNarrowed(bucket.dtype, bucket.wire);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_VOTE_H_
