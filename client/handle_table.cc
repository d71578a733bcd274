#include "client/handle_table.h"

#include <utility>

namespace ronda {

ronda_handle HandleTable::Add(std::shared_ptr<const Operation> operation) {
  MutexLock lock(&mu_);
  operations_[next_id_] = std::move(operation);
  return next_id_++;
}

std::shared_ptr<const Operation> HandleTable::Find(ronda_handle id) const {
  MutexLock lock(&mu_);
  const auto found = operations_.find(id);
  return found == operations_.end() ? nullptr : found->second;
}

std::shared_ptr<const Operation> HandleTable::Remove(ronda_handle id) {
  MutexLock lock(&mu_);
  const auto found = operations_.find(id);
  if (found == operations_.end()) return nullptr;
  std::shared_ptr<const Operation> operation = std::move(found->second);
  operations_.erase(found);
  return operation;
}

}  // namespace ronda
