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
// Every program that a rank starts inherits the rank's environment variables. Without claims, a program that starts a
// copy of itself would therefore be the same rank twice, and the ranks and their copies would form separate jobs.
//
// A claim is a name in Linux's abstract socket namespace. The claim ends with the process, even if the process crashes,
// and leaves no file. Processes that run one after the other may have the same claim. For example, a script may run two
// programs one after the other, both as the same rank.
//
// Thread-compatible, except for LeaveToParent().
class RankClaim {
 public:
  RankClaim() = default;
  ~RankClaim() { Release(); }
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;

  // Claims the rank that `job` gives to this process, and releases the previous claim. A job needs no claim if it has
  // one rank, or if the ranks share no name or address of the job (some jobs under MPI).
  // Errors: FAILED_PRECONDITION if another process has the claim; the text names that process.
  absl::Status Acquire(const JobEnvironment& job);

  void Release();

  // A child of fork() calls this function to leave the claim to its parent. Async-signal-safe.
  void LeaveToParent() const;

 private:
  std::atomic<int> socket_{-1};
};

}  // namespace ronda

#endif  // RONDA_CLIENT_RANK_CLAIM_H_
