#include "runtime/engine/process_sets.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda {

absl::StatusOr<std::shared_ptr<const Group>> ProcessSets::Find(ProcessSetId id) const {
  if (id == kGlobalProcessSet) return global_;
  {
    MutexLock lock(&mu_);
    if (auto group = table_.Find(id)) return group;
    if (table_.Known(id)) {
      return absl::InvalidArgumentError(absl::StrCat("process set ", id, " was removed: use another, or 0 for all"));
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no process set ", id, ", only ", absl::StrJoin(Ids(), ", "),
                                                 ": add it on every rank first"));
}

std::vector<ProcessSetId> ProcessSets::Ids() const {
  MutexLock lock(&mu_);
  std::vector<ProcessSetId> ids;
  for (ProcessSetId id = 0; id < table_.next_id(); ++id) {
    if (table_.Find(id) != nullptr) ids.push_back(id);
  }
  return ids;
}

absl::Status ProcessSets::Apply(const Response& response) {
  MutexLock lock(&mu_);
  return table_.Apply(response);
}

}  // namespace ronda
