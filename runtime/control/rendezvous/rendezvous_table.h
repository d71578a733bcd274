#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_TABLE_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_TABLE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/control/rendezvous/agreement.h"
#include "runtime/control/rendezvous/membership.h"

namespace ronda {

// Who has joined a job that is gathering. Rank 0, whose process keeps the table, is there from the start.
//
// A pure state machine: no threads, clocks or network.
//
// Thread-compatible.
class RendezvousTable {
 public:
  struct Options {
    std::string job_id;
    int size = 1;  // of the job
    Member coordinator;
  };

  explicit RendezvousTable(Options options);

  const Options& options() const { return options_; }

  // Takes a rank in. A refused claim changes nothing but the text of a later DeadlineError.
  // Errors, all of which name both parties: INVALID_ARGUMENT (another size, no such rank), ALREADY_EXISTS (the rank is
  // taken).
  absl::Status Add(const JoinClaim& claim);

  // Forgets a rank that went away before the job was complete; its place can be taken again.
  // REQUIRES: `rank` is not 0, has joined, and the table is not complete.
  void Remove(RankId rank);

  // Remembers why a claim was refused, here or by the caller: it may be the reason why a rank is missing.
  void NoteRefusal(const absl::Status& refusal);

  bool complete() const { return joined_ == options_.size; }

  // Whether the members, of which only all together show who is the odd one, can work together.
  // REQUIRES: complete().
  // Errors: those of CheckAgreement.
  absl::Status Agreement() const { return CheckAgreement(membership().members); }

  // REQUIRES: complete().
  Membership membership() const;

  // DEADLINE_EXCEEDED that names the ranks missing after `waited`, and what is known about why.
  absl::Status DeadlineError(absl::Duration waited) const;

 private:
  absl::Status Check(const JoinClaim& claim) const;

  const Options options_;
  std::vector<std::optional<Member>> members_;  // by rank
  int joined_ = 0;
  std::vector<std::string> notes_;  // refusals and departures, the oldest kMaxNotes of them
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_TABLE_H_
