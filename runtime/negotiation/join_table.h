#ifndef RONDA_RUNTIME_NEGOTIATION_JOIN_TABLE_H_
#define RONDA_RUNTIME_NEGOTIATION_JOIN_TABLE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "runtime/base/group.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/position_set.h"

namespace ronda {

// The members of one process set that have joined; at least one has.
struct SetJoins {
  TensorRequest request;                 // of the first to join
  std::shared_ptr<const Group> members;  // of the process set
  PositionSet joined;                    // of `members`
  RankId first = 0;
  RankId last = 0;
  absl::Time since;      // when something has last happened in the process set: joins may rightly wait for long
  std::string mismatch;  // empty while the joins agree

  bool complete() const { return joined.count() == members->size(); }
  bool Contains(RankId rank) const {
    const std::optional<int> position = members->PositionOf(rank);
    return position && joined.Contains(*position);
  }
  // Ascending.
  std::vector<RankId> ranks() const;
};

// Who has joined, by process set.
//
// Thread-compatible.
class JoinTable {
 public:
  // nullptr if no rank of the set has joined.
  SetJoins* Find(ProcessSetId set);
  const SetJoins* Find(ProcessSetId set) const;

  bool Contains(ProcessSetId set, RankId rank) const {
    if (sets_.empty()) return false;
    const SetJoins* joins = Find(set);
    return joins != nullptr && joins->Contains(rank);
  }

  // REQUIRES: `rank` is in `members` and has not joined.
  SetJoins* Add(RankId rank, const TensorRequest& request, const std::shared_ptr<const Group>& members, absl::Time now);

  // All members are present again.
  void Erase(ProcessSetId set) { sets_.erase(set); }

  // Process sets in which a rank has joined; ascending.
  std::vector<ProcessSetId> sets() const;

  bool empty() const { return sets_.empty(); }

 private:
  absl::flat_hash_map<ProcessSetId, SetJoins> sets_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NEGOTIATION_JOIN_TABLE_H_
