// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_SERVICE_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_SERVICE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/base/mutex.h"
#include "runtime/net/proof.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// Rank 0's side of the rendezvous: processes join requests, adds the ranks to a RendezvousTable, and answers all of
// them once the table is complete. The service itself does no network I/O; RendezvousServer connects it to the network.
//
// Thread-safe.
class RendezvousService {
 public:
  struct Options {
    RendezvousTable::Options table;
    std::string secret;                                 // empty: no proof is required
    absl::Time deadline = absl::InfiniteFuture();       // by when all ranks must have joined
    absl::Duration timeout = absl::InfiniteDuration();  // from the start to the deadline, for messages
  };

  // Receives the answer to a Join(). Called exactly once, on any thread, possibly before Join() returns.
  using JoinDone = std::function<void(const absl::StatusOr<v1::JoinResponse>& response)>;
  using Ticket = uint64_t;

  explicit RendezvousService(Options options);

  // Issues a nonce. Errors: INTERNAL if the system cannot provide random bytes.
  absl::StatusOr<v1::ChallengeResponse> Challenge(absl::Time now);

  // Processes a rank's request to join. Calls `done` at once and returns nullopt if it rejects the rank. Otherwise
  // calls `done` when all ranks have joined or the rendezvous has failed.
  // Errors: those of RendezvousTable::Add() and Agreement(); INVALID_ARGUMENT for a malformed message; UNAUTHENTICATED
  // for an unknown nonce; PERMISSION_DENIED for a wrong proof; the error with which the rendezvous failed.
  std::optional<Ticket> Join(const v1::JoinRequest& request, const JoinDone& done);

  // Must be called when the rank behind a Join() no longer waits for the answer. Calls its `done` with CANCELLED if the
  // Join() has not been answered yet. Another process may then join as this rank.
  void Abandon(Ticket ticket);

  // Blocks until all ranks have joined. The rendezvous fails at the deadline, or if the ranks contradict each other.
  // Errors: the error with which the rendezvous failed; DEADLINE_EXCEEDED that names the missing ranks.
  absl::StatusOr<MemberList> Await();

  // Fails the rendezvous, unless it has ended: every waiting rank gets `failure`.
  void Fail(const absl::Status& failure);

 private:
  struct Waiter {
    RankId rank = 0;
    JoinDone done;
  };
  using Waiters = std::map<Ticket, Waiter>;

  // Checks the proof in the request, and returns the rank's claim.
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
