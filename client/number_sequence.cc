#include "client/number_sequence.h"

#include <utility>

#include "absl/status/status.h"

namespace ronda {

uint64_t NumberSequence::Next() {
  Settle();
  const uint64_t number = again_.empty() ? next_ : *again_.begin();
  in_flight_.try_emplace(number);
  return number;
}

void NumberSequence::Take(std::shared_ptr<const Handle> operation) {
  const uint64_t number = again_.empty() ? next_ : *again_.begin();
  if (again_.erase(number) == 0) ++next_;
  in_flight_.at(number) = std::move(operation);
}

void NumberSequence::Settle() {
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    if (it->second == nullptr || !it->second->done()) {
      ++it;
      continue;
    }
    if (absl::IsDeadlineExceeded(it->second->Wait())) again_.insert(it->first);
    it = in_flight_.erase(it);
  }
}

}  // namespace ronda
