#include "runtime/negotiation/group_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ronda {

absl::Status HeldGroup::Verdict() const {
  const TensorRequest& first = tensors.front().tensor->request();
  for (const ConcludedTensor& member : tensors) {
    const TensorRequest& request = member.tensor->request();
    if (!member.verdict.ok()) {
      return absl::Status(member.verdict.code(),
                          absl::StrCat("no tensor of group '", first.group, "' is carried out, because of tensor '",
                                       request.name, "': ", member.verdict.message()));
    }
    if (request.group_size != first.group_size) {
      return absl::FailedPreconditionError(
          absl::StrCat("no tensor of group '", first.group, "' is carried out: tensor '", first.name, "' is one of ",
                       first.group_size, " tensors, and tensor '", request.name, "' is one of ", request.group_size));
    }
  }
  if (static_cast<int>(tensors.size()) == size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("no tensor of group '", first.group, "' is carried out: it has ",
                                                    tensors.size(), " tensors, and not ", size, " as they say"));
}

void GroupTable::Hold(ConcludedTensor tensor, absl::Time now) {
  const TensorRequest& request = tensor.tensor->request();
  const auto [it, is_new] = groups_.try_emplace(TensorKey(GroupOf(request)));
  HeldGroup& group = it->second;
  if (is_new) {
    group.size = request.group_size;
    group.since = now;
    group.sequence = next_sequence_++;
  }
  group.tensors.push_back(std::move(tensor));
}

template <typename Predicate>
std::vector<HeldGroup> GroupTable::TakeIf(Predicate predicate) {
  std::vector<HeldGroup> taken;
  for (auto it = groups_.begin(); it != groups_.end();) {
    const auto current = it++;
    if (!predicate(*current)) continue;
    taken.push_back(std::move(current->second));
    groups_.erase(current);
  }
  std::sort(taken.begin(), taken.end(), [](const HeldGroup& a, const HeldGroup& b) { return a.sequence < b.sequence; });
  return taken;
}

std::vector<HeldGroup> GroupTable::TakeComplete() {
  return TakeIf([](const auto& entry) { return static_cast<int>(entry.second.tensors.size()) >= entry.second.size; });
}

std::vector<HeldGroup> GroupTable::Take(TensorKeyView group) {
  return TakeIf([&](const auto& entry) { return TensorKeyView(entry.first) == group; });
}

std::vector<HeldGroup> GroupTable::TakeAllOf(ProcessSetId set) {
  return TakeIf([&](const auto& entry) { return entry.first.process_set == set; });
}

void GroupTable::SpellOut(CacheId id) {
  for (auto& [key, group] : groups_) {
    for (ConcludedTensor& member : group.tensors) {
      if (member.tensor->cached_as == id) member.tensor->SpellOut();
    }
  }
}

const HeldGroup* GroupTable::FindByTensor(TensorKeyView tensor) const {
  for (const auto& [key, group] : groups_) {
    for (const ConcludedTensor& member : group.tensors) {
      if (member.tensor->request().key() == tensor) return &group;
    }
  }
  return nullptr;
}

}  // namespace ronda
