#include "client/handle_table.h"

#include <utility>

namespace ronda {

ronda_handle HandleTable::Add(HeldOperation operation) {
  MutexLock lock(&mu_);
  const ronda_handle id = next_id_++;
  operations_[id] = std::move(operation);
  return id;
}

std::optional<HeldOperation> HandleTable::Find(ronda_handle id) const {
  MutexLock lock(&mu_);
  const auto found = operations_.find(id);
  if (found == operations_.end()) return std::nullopt;
  return found->second;
}

std::optional<HeldOperation> HandleTable::Remove(ronda_handle id) {
  MutexLock lock(&mu_);
  const auto found = operations_.find(id);
  if (found == operations_.end()) return std::nullopt;
  HeldOperation operation = std::move(found->second);
  operations_.erase(found);
  return operation;
}

}  // namespace ronda
