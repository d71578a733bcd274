#include "runtime/negotiation/schedule_lock.h"

#include <utility>

#include "runtime/base/logging.h"

namespace ronda {

ScheduleLock::ScheduleLock(const Schedule& schedule, std::vector<AgreedBucket> buckets) : number_(schedule.number) {
  RONDA_CHECK(schedule.buckets.size() == buckets.size());
  slots_.reserve(buckets.size());
  for (size_t place = 0; place < buckets.size(); ++place) {
    for (CacheId id : schedule.buckets[place]) RONDA_CHECK(slot_of_.emplace(id, place).second);
    const size_t tensors = buckets[place].responses.size();
    slots_.push_back({std::move(buckets[place]), tensors});
  }
}

void ScheduleLock::Submit(CacheId id) {
  const auto it = slot_of_.find(id);
  if (it == slot_of_.end()) return Leave();
  Slot& slot = slots_[it->second];
  RONDA_CHECK(slot.missing > 0);
  --slot.missing;
  ++submitted_;
}

const AgreedBucket* ScheduleLock::Next() const {
  const Slot& slot = slots_[next_];
  return slot.missing == 0 || leaving_ ? &slot.bucket : nullptr;
}

void ScheduleLock::Advance() {
  Slot& slot = slots_[next_];
  RONDA_CHECK(slot.missing == 0);
  slot.missing = slot.bucket.responses.size();
  submitted_ -= slot.missing;
  if (++next_ < slots_.size()) return;
  next_ = 0;
  ++rounds_;
}

}  // namespace ronda
