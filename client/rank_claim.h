// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_RANK_CLAIM_H_
#define RONDA_CLIENT_RANK_CLAIM_H_

#include <atomic>

#include "absl/status/status.h"
#include "runtime/base/config.h"

namespace ronda {

// This process's exclusive claim to its rank in a job. No other process on this host can hold the same claim at the
// same time.
//
// Every program that a rank starts inherits the rank's environment variables. Without claims, a program that starts a
// copy of itself would therefore act as the same rank twice, and the ranks and their copies would form separate jobs.
//
// A claim is a bound name in Linux's abstract socket namespace. The claim ends with the process, even if the process
// crashes, and leaves no file. Processes that run one after the other may hold the same claim: for example, a script
// may run two programs in turn as the same rank.
//
// Thread-compatible, except for LeaveToParent().
class RankClaim {
 public:
  RankClaim() = default;
  ~RankClaim() { Release(); }
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;

  // Claims the rank that `job` gives to this process, and releases the previous claim. A job needs no claim if it has
  // only one rank, or if its ranks share no job name or address (as in some MPI jobs).
  // Errors: FAILED_PRECONDITION if another process has the claim; the text names that process.
  absl::Status Acquire(const JobEnvironment& job);

  void Release();

  // Called by a forked child to leave the claim to its parent. Async-signal-safe.
  void LeaveToParent() const;

 private:
  std::atomic<int> socket_{-1};
};

}  // namespace ronda

#endif  // RONDA_CLIENT_RANK_CLAIM_H_
