#ifndef RONDA_CLIENT_RANK_CLAIM_H_
#define RONDA_CLIENT_RANK_CLAIM_H_

#include <atomic>

#include "absl/status/status.h"
#include "runtime/base/config.h"

namespace ronda {

// The claim of this process to its rank of a job, which no other process on this host can have at the same time.
//
// The variables of a rank's place pass to every program that the rank starts. A program that starts a copy of itself
// would be the same rank twice: the ranks and the copies would meet in any combination, and form jobs of their own.
//
// A claim is a name in Linux's abstract socket namespace: it is gone with the process, however that ends, and leaves no
// file. Ranks after each other may have the same claim: a script that runs two programs is one rank in both.
//
// Thread-compatible, but for LeaveToParent().
class RankClaim {
 public:
  RankClaim() = default;
  ~RankClaim() { Release(); }
  RankClaim(const RankClaim&) = delete;
  RankClaim& operator=(const RankClaim&) = delete;

  // Claims the rank that `job` gives to this process; the claim before is released. A job of one rank, and one whose
  // ranks know no common name or address of it (some under MPI), need none.
  // Errors: FAILED_PRECONDITION that names the other process.
  absl::Status Take(const JobEnvironment& job);

  void Release();

  // In a child of fork(): the claim is its parent's, and ends with that. Async-signal-safe.
  void LeaveToParent() const;

 private:
  std::atomic<int> socket_{-1};
};

}  // namespace ronda

#endif  // RONDA_CLIENT_RANK_CLAIM_H_
