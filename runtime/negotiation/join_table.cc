#include "runtime/negotiation/join_table.h"

#include <algorithm>

namespace ronda {

std::vector<RankId> SetJoins::ranks() const {
  std::vector<RankId> ranks;
  for (int position = 0; position < members->size(); ++position) {
    if (joined.Contains(position)) ranks.push_back((*members)[position]);
  }
  return ranks;
}

SetJoins* JoinTable::Find(ProcessSetId set) {
  const auto it = sets_.find(set);
  return it == sets_.end() ? nullptr : &it->second;
}

const SetJoins* JoinTable::Find(ProcessSetId set) const {
  const auto it = sets_.find(set);
  return it == sets_.end() ? nullptr : &it->second;
}

SetJoins* JoinTable::Add(RankId rank, const TensorRequest& request, const std::shared_ptr<const Group>& members,
                         absl::Time now) {
  const auto [it, is_new] = sets_.try_emplace(request.process_set);
  SetJoins& joins = it->second;
  if (is_new) {
    joins.request = request;
    joins.members = members;
    joins.joined.Reset(members->size());
    joins.first = rank;
  }
  joins.joined.Insert(*members->PositionOf(rank));
  joins.last = rank;
  joins.since = now;
  return &joins;
}

std::vector<ProcessSetId> JoinTable::sets() const {
  std::vector<ProcessSetId> ids;
  for (const auto& [id, joins] : sets_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace ronda
