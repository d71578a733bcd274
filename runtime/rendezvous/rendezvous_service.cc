// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rendezvous_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/rendezvous/rank_facts.h"
#include "runtime/rendezvous/rendezvous_codec.h"

namespace ronda {
namespace {

// Returns how many nonces to keep. Ranks use their nonces immediately, so a few more suffice for callers that request
// nonces and never use them.
size_t NonceCapacity(int size) { return 2 * static_cast<size_t>(size) + 64; }

}  // namespace

RendezvousService::RendezvousService(Options options)
    : options_(std::move(options)), table_(options_.table), nonces_(NonceCapacity(options_.table.size)) {}

absl::StatusOr<v1::ChallengeResponse> RendezvousService::Challenge(absl::Time now) {
  RONDA_ASSIGN_OR_RETURN(std::string nonce, RandomBytes(kNonceBytes));
  v1::ChallengeResponse response;
  response.set_nonce(nonce);
  response.set_wait_ms(absl::ToInt64Milliseconds(std::max(options_.deadline - now, absl::ZeroDuration())));
  MutexLock lock(&mu_);
  nonces_.Issue(std::move(nonce));
  return response;
}

absl::Status RendezvousService::CheckProof(const v1::JoinRequest& request, const JoinClaim& claim) const {
  const std::string joining_rank = ToString(claim.member.peer);
  const std::string coordinator = ToString(options_.table.coordinator.peer);
  if (options_.secret.empty()) {
    if (request.proof().empty()) return absl::OkStatus();
    return absl::PermissionDeniedError(absl::StrCat(joining_rank, " has a job secret, but ", coordinator,
                                                    " has none: set RONDA_JOB_SECRET to the same value on every rank"));
  }
  if (request.proof().empty()) {
    return absl::PermissionDeniedError(
        absl::StrCat(joining_rank, " has no job secret, but ", coordinator,
                     " asks for it: set RONDA_JOB_SECRET to the same value on every rank"));
  }
  if (!IsJoinProof(request.proof(), options_.secret, request.nonce(), claim)) {
    // A rank with a different version of Ronda may compute its proof from different fields. So reports the version
    // mismatch instead of a wrong proof.
    if (claim.member.version != options_.table.coordinator.version) {
      return CheckAgreement({options_.table.coordinator, claim.member});
    }
    return absl::PermissionDeniedError(
        absl::StrCat(joining_rank, " has another job secret than ", coordinator,
                     ": set RONDA_JOB_SECRET to the same value on every rank, or keep the jobs on different ports"));
  }
  return absl::OkStatus();
}

absl::StatusOr<JoinClaim> RendezvousService::AuthenticateLocked(const v1::JoinRequest& request) {
  RONDA_ASSIGN_OR_RETURN(JoinClaim claim, DecodeClaim(request));
  if (!nonces_.Consume(request.nonce())) {
    return absl::UnauthenticatedError(absl::StrCat(ToString(claim.member.peer), " joins ",
                                                   ToString(options_.table.coordinator.peer),
                                                   " with a nonce that is unknown or used up"));
  }
  RONDA_RETURN_IF_ERROR(CheckProof(request, claim));
  return claim;
}

absl::Status RendezvousService::AdmitLocked(const v1::JoinRequest& request, Ticket ticket, const JoinDone& done) {
  absl::StatusOr<JoinClaim> claim = AuthenticateLocked(request);
  if (!claim.ok()) {
    table_.RecordRefusal(claim.status());
    return claim.status();
  }
  // Returns the failure only after checking the proof, because only ranks of the job are allowed to see it. A rank of a
  // later epoch gets the table's error instead, which makes it try again.
  if (!failure_.ok() && claim->epoch <= options_.table.epoch) return failure_;
  RONDA_RETURN_IF_ERROR(table_.Add(*claim));
  waiters_[ticket] = {.rank = claim->member.peer.rank, .done = done};
  return absl::OkStatus();
}

RendezvousService::Waiters RendezvousService::TakeWaitersLocked() {
  over_.NotifyAll();
  return std::exchange(waiters_, {});
}

std::optional<RendezvousService::Ticket> RendezvousService::Join(const v1::JoinRequest& request, const JoinDone& done) {
  Ticket ticket = 0;
  absl::Status admitted;
  Waiters served;  // their callbacks run without the lock
  absl::StatusOr<v1::JoinResponse> answer = absl::UnknownError("not complete");
  {
    MutexLock lock(&mu_);
    ticket = next_ticket_++;
    admitted = AdmitLocked(request, ticket, done);
    if (admitted.ok() && table_.complete()) {
      served = TakeWaitersLocked();
      failure_ = table_.Agreement();
      if (failure_.ok()) {
        answer = EncodeMemberList(table_.member_list());
      } else {
        answer = failure_;
      }
    }
  }
  for (const auto& [unused, waiter] : served) waiter.done(answer);
  if (admitted.ok()) return ticket;
  Log(LogLevel::kWarning, kCoordinatorRank, absl::StrCat("refused: ", admitted.message()));
  done(admitted);
  // The job has moved on to a later epoch without this rank 0, so this rank 0 and the ranks that have joined it would
  // wait in vain.
  if (absl::IsAborted(admitted)) Fail(absl::FailedPreconditionError(admitted.message()));
  return std::nullopt;
}

void RendezvousService::Abandon(Ticket ticket) {
  Waiter waiter;
  {
    MutexLock lock(&mu_);
    const auto it = waiters_.find(ticket);
    if (it == waiters_.end()) return;
    waiter = std::move(it->second);
    waiters_.erase(it);
    table_.Remove(waiter.rank);
  }
  waiter.done(absl::CancelledError(absl::StrCat("rank ", waiter.rank, " does not wait any more")));
}

absl::StatusOr<MemberList> RendezvousService::Await() {
  absl::Status expired;
  {
    MutexLock lock(&mu_);
    while (true) {
      if (!failure_.ok()) return failure_;
      if (table_.complete()) return table_.member_list();
      const absl::Duration left = options_.deadline - SteadyNow();
      if (left <= absl::ZeroDuration()) break;
      over_.WaitFor(&mu_, left);
    }
    expired = table_.DeadlineError(options_.timeout);
  }
  Fail(expired);
  MutexLock lock(&mu_);
  if (!failure_.ok()) return failure_;
  // The last rank joined while the lock was not held, so the rendezvous succeeded.
  return table_.member_list();
}

void RendezvousService::Fail(const absl::Status& failure) {
  Waiters served;
  {
    MutexLock lock(&mu_);
    if (table_.complete() || !failure_.ok()) return;
    failure_ = failure;
    served = TakeWaitersLocked();
  }
  for (const auto& [unused, waiter] : served) waiter.done(failure);
}

}  // namespace ronda
