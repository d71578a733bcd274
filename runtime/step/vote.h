// SPDX-License-Identifier: Apache-2.0

// The vote of all ranks on whether to carry out a bucket of the locked schedule.
#ifndef RONDA_RUNTIME_STEP_VOTE_H_
#define RONDA_RUNTIME_STEP_VOTE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

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

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_VOTE_H_
