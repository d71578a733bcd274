#include "runtime/negotiation/process_set_table.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace ronda {

ProcessSetTable::ProcessSetTable(int world_size) {
  sets_.push_back(std::make_shared<const Group>(Group::All(world_size)));
}

absl::Status ProcessSetTable::Apply(const Response& response) {
  if (response.request.op == OpType::kAddProcessSet) return Add(response.request);
  if (response.request.op == OpType::kRemoveProcessSet) return Remove(response.request.subject);
  return absl::OkStatus();
}

absl::Status ProcessSetTable::Add(const TensorRequest& request) {
  const std::vector<RankId>& members = request.members;
  if (request.subject != next_id()) {
    return absl::InvalidArgumentError(
        absl::StrCat("process set ", request.subject, " is added where ", next_id(), " is the next"));
  }
  const int world_size = sets_[kGlobalProcessSet]->size();
  const bool ascending = std::is_sorted(members.begin(), members.end(), std::less_equal<RankId>());
  if (members.empty() || !ascending || members.front() < 0 || members.back() >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("process set ", request.subject, " of other ranks than 0 to ",
                                                   world_size - 1, ", each once and in ascending order"));
  }
  sets_.push_back(std::make_shared<const Group>(members));
  return absl::OkStatus();
}

absl::Status ProcessSetTable::Remove(ProcessSetId id) {
  if (id == kGlobalProcessSet || Find(id) == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("process set ", id, " is removed, which is not there"));
  }
  sets_[id] = nullptr;
  return absl::OkStatus();
}

}  // namespace ronda
