#ifndef RONDA_RUNTIME_NEGOTIATION_WAITING_H_
#define RONDA_RUNTIME_NEGOTIATION_WAITING_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/negotiation/group_table.h"
#include "runtime/negotiation/join_table.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/pending_table.h"
#include "runtime/negotiation/roster.h"

namespace ronda {

// A tensor that some ranks wait for, or, with an empty name, the end of the job.
struct Waiting {
  TensorKey tensor;
  std::string description;  // "tensor 'x' (allreduce of float32 [3])"
  absl::Time since;         // when its first submission arrived
  WaitLimits limits;
  std::vector<RankId> present;  // ascending
  std::vector<RankId> missing;  // ascending; not those that have joined
};

// What waits in the negotiator's tables, and for whom.
//
// A view: it owns nothing and lives shorter than the tables. Thread-compatible.
class WaitingView {
 public:
  // `limits` are those of tensors that come without their own.
  WaitingView(const PendingTable& pending, const JoinTable& joins, const GroupTable& groups, const Roster& roster,
              const WaitLimits& limits)
      : pending_(pending), joins_(joins), groups_(groups), roster_(roster), limits_(limits) {}

  // Everything that waits for so long that a warning or the deadline is due, oldest first.
  std::vector<Waiting> Overdue(absl::Time now) const;

  // The shortest limit of anything that waits, the job's included.
  absl::Duration ShortestLimit() const;

 private:
  Waiting WaitingOf(const PendingTensor& tensor) const;
  Waiting WaitingOf(const SetJoins& joins) const;
  Waiting WaitingOf(const HeldGroup& group) const;
  Waiting WaitingForDepartures() const;
  WaitLimits LimitsOf(const TensorRequest& request) const { return request.limits.value_or(limits_); }

  const PendingTable& pending_;
  const JoinTable& joins_;
  const GroupTable& groups_;
  const Roster& roster_;
  const WaitLimits limits_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_WAITING_H_
