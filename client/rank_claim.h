// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_RANK_CLAIM_H_
#define RONDA_CLIENT_RANK_CLAIM_H_

#include <atomic>

#include "absl/status/status.h"
#include "runtime/base/config.h"

namespace ronda {

// The claim of this process to its rank of a job. No other process on this host can have the same claim at the same
// time.
//
// The variables of a rank's place pass to every program that the rank starts. A program that starts a copy of itself
// would be the same rank twice: ranks and copies would meet in any combination, and form separate jobs.
//
// A claim is a name in Linux's abstract socket namespace. It ends with the process, however that ends, and leaves no
// file. Processes that run one after the other may have the same claim. For example, a script that runs two programs
// one after the other is the same rank in both.
//
// Thread-compatible, except for LeaveToParent().
class RankClaim {
 public:
  RankClaim() = default;
  ~RankClaim() { Release(); }
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;

  // Claims the rank that `job` gives to this process, and releases the previous claim. A job needs no claim if it has
  // one rank, or if its ranks know no common name or address of it (some jobs under MPI).
  // Errors: FAILED_PRECONDITION that names the other process.
  absl::Status Acquire(const JobEnvironment& job);

  void Release();

  // In a child of fork(): the claim belongs to the parent, and ends with it. Async-signal-safe.
  void LeaveToParent() const;

 private:
  std::atomic<int> socket_{-1};
};

}  // namespace ronda

#endif  // RONDA_CLIENT_RANK_CLAIM_H_
