#ifndef RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_
#define RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/negotiation/membership.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/pending_tensors.h"

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

// Shows everything that waits in the negotiator's tables, and for which ranks.
//
// A view: it owns nothing, and the tables must outlive it. Thread-compatible.
class WaitingView {
 public:
  struct Tables {
    const PendingTable& pending;
    const JoinTable& joins;
    const GroupTable& groups;
    const JobRanks& ranks;
  };
  // Whether something that waits may have limits of its own.
  enum class OwnLimits : uint8_t { kNone, kPossible };

  // `limits` are those of tensors that come without their own.
  WaitingView(const Tables& tables, const WaitLimits& limits, OwnLimits own_limits)
      : tables_(tables), limits_(limits), own_limits_(own_limits) {}

  bool empty() const {
    return tables_.pending.empty() && tables_.joins.empty() && tables_.groups.empty() && !tables_.ranks.some_departed();
  }

  // Everything that waits for so long that a warning or the deadline is due, oldest first.
  std::vector<Waiting> Overdue(absl::Time now) const;

  // The shortest limit of anything that waits, the job's included; infinite if nothing does.
  absl::Duration ShortestLimit() const;

  // The tensors that `rank` has submitted and that wait for others, at most `limit` names.
  std::vector<std::string> SubmittedBy(RankId rank, size_t limit) const;

  // "rank 1 (host h, pid 42)"
  std::string Describe(RankId rank) const { return tables_.ranks.Describe(rank); }

 private:
  Waiting WaitingOf(const PendingTensor& tensor) const;
  Waiting WaitingOf(const SetJoins& joins) const;
  Waiting WaitingOf(const HeldGroup& group) const;
  Waiting WaitingForDepartures() const;
  WaitLimits LimitsOf(const TensorRequest& request) const { return request.limits.value_or(limits_); }

  const Tables tables_;
  const WaitLimits limits_;
  const OwnLimits own_limits_;
};

// Looks for tensors that some ranks have submitted long ago and others have not. Reports which ranks are late, which
// tensors those have submitted instead, and their last activity. Each tensor has limits of its own (WaitLimits).
//
// A pure state machine. Thread-compatible.
class StallInspector {
 public:
  struct Options {
    // "did last, 12.1 s ago: started allreduce 'x'"; empty if nothing is known of the rank. May be left out.
    std::function<std::string(RankId)> last_activity;
  };

  explicit StallInspector(Options options) : options_(std::move(options)) {}

  struct Finding {
    TensorKey tensor;  // for Negotiator::Fail; with an empty name: ranks wait for others to shut down
    std::string text;  // names the tensor, its age, and the ranks that are late
    enum class Verdict { kWarn, kFail } verdict;
  };

  // The waits that have reached a limit since the last call.
  std::vector<Finding> Inspect(const WaitingView& view, absl::Time now);

  // When to inspect again. A finding is at most an eighth of its limit late.
  absl::Time NextInspection(const WaitingView& view, absl::Time now) const;

 private:
  std::string DescribeLateRank(const WaitingView& view, RankId rank) const;
  std::string DescribeStall(const WaitingView& view, const Waiting& waiting, absl::Time now) const;

  const Options options_;
  absl::flat_hash_map<TensorKey, absl::Time> warned_;  // since when the tensor that was reported waits
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_STALL_INSPECTOR_H_
