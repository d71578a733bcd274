// SPDX-License-Identifier: Apache-2.0

// The vote of all ranks on whether to carry out a bucket of the locked schedule.
#ifndef RONDA_RUNTIME_STEP_VOTE_H_
#define RONDA_RUNTIME_STEP_VOTE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "runtime/base/operation.h"
#include "runtime/base/types.h"

namespace ronda {

// A vote on whether a call is carried out. It travels before the call's data, or with it. The call is carried out if
// all ranks of the job approve. If one rank vetoes, no rank's output is written. The call then has no effect except
// that it is part of the sequence of calls, because every rank has made it.
struct Ballot {
  enum class Vote : uint8_t { kApprove, kVeto };
  Vote own = Vote::kApprove;  // kVeto: the segments' pointers are not used
  // The thread that makes the call runs this at most once: when it has waited for the others longer than
  // `limits.warning`.
  absl::FunctionRef<void()> when_late;
  enum class Result : uint8_t { kCarriedOut, kVetoed } result = Result::kCarriedOut;  // equal on every rank
};

// What the rule below needs to know of a bucket.
struct VotedBucket {
  OpType op = OpType::kAllreduce;
  Memory memory = Memory::kHost;
  Reduction reduction = Reduction::kSum;
  DType dtype = DType::kFloat32;
  WireFormat wire = WireFormat::kNone;
};

// The rule: a vote goes with the data of a reduction in one round of the host's communicator. In all other cases the
// ranks first vote in a barrier, because one of them could not take its part of the bucket back after a veto:
//  - Other operations write the outputs as the data arrive, and Adasum takes several rounds.
//  - What a GPU has been given runs.
//  - To round a tensor to the wire's format changes its residual, if it has one. Only the rank itself knows that.
constexpr bool VoteGoesWithData(const VotedBucket& bucket) {
  return TraitsOf(bucket.op).reduces && bucket.reduction != Reduction::kAdasum && bucket.memory == Memory::kHost &&
         !IsNarrowed(bucket.dtype, bucket.wire);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_VOTE_H_
