// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_SERVICE_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/base/mutex.h"
#include "runtime/net/proof.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// Rank 0's half of the rendezvous, in terms of messages: admits ranks to a RendezvousTable and answers all of them at
// once. The service knows no network; RendezvousServer connects it to one.
//
// Thread-safe.
class RendezvousService {
 public:
  struct Options {
    RendezvousTable::Options table;
    std::string secret;                                 // empty: no proof is required
    absl::Time deadline = absl::InfiniteFuture();       // until when all ranks must have joined
    absl::Duration timeout = absl::InfiniteDuration();  // from the start to the deadline, for messages
  };

  // Called exactly once for a Join, from any thread and possibly before Join returns.
  using JoinDone = std::function<void(const absl::StatusOr<v1::JoinResponse>& response)>;
  using Ticket = uint64_t;

  explicit RendezvousService(Options options);

  // Errors: INTERNAL if the system gives no random bytes.
  absl::StatusOr<v1::ChallengeResponse> Challenge(absl::Time now);

  // Calls `done` with the answer. If the rank is refused, Join calls it at once and returns no ticket. Otherwise `done`
  // is called when the rendezvous ends.
  // Errors: the errors of RendezvousTable::Add and Agreement; INVALID_ARGUMENT for a damaged message; UNAUTHENTICATED
  // for an unknown nonce; PERMISSION_DENIED for a wrong proof; or why the rendezvous failed.
  std::optional<Ticket> Join(const v1::JoinRequest& request, const JoinDone& done);

  // The sender of a Join no longer waits for its answer. If the Join has had no answer yet, another process may join as
  // its rank, and its `done` is called with CANCELLED.
  void Abandon(Ticket ticket);

  // Blocks until all ranks have joined. At the deadline, or if the ranks do not fit together, the rendezvous fails.
  // Errors: why the rendezvous failed; DEADLINE_EXCEEDED that names the missing ranks.
  absl::StatusOr<MemberList> Await();

  // Fails the rendezvous, unless it is over: every waiting rank gets `failure`.
  void Fail(const absl::Status& failure);

 private:
  struct Waiter {
    RankId rank = 0;
    JoinDone done;
  };
  using Waiters = std::map<Ticket, Waiter>;

  // Returns the claim of a rank that has proved its membership.
  absl::StatusOr<JoinClaim> AuthenticateLocked(const v1::JoinRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckProof(const v1::JoinRequest& request, const JoinClaim& claim) const;
  absl::Status AdmitLocked(const v1::JoinRequest& request, Ticket ticket, const JoinDone& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Waiters TakeWaitersLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;

  Mutex mu_;
  CondVar over_;  // notified once the table is complete or failure_ is set
  RendezvousTable table_ ABSL_GUARDED_BY(mu_);
  NonceLedger nonces_ ABSL_GUARDED_BY(mu_);
  Waiters waiters_ ABSL_GUARDED_BY(mu_);
  Ticket next_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);  // sticky
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_SERVICE_H_
