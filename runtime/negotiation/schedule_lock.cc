#include "runtime/negotiation/schedule_lock.h"

#include <utility>

#include "runtime/base/logging.h"

namespace ronda {

ScheduleLock::ScheduleLock(const Schedule& schedule, std::vector<AgreedBucket> buckets) : number_(schedule.number) {
  RONDA_CHECK(schedule.buckets.size() == buckets.size());
  slots_.reserve(buckets.size());
  for (size_t place = 0; place < buckets.size(); ++place) {
    const std::vector<CacheId>& ids = schedule.buckets[place];
    for (size_t i = 0; i < ids.size(); ++i) {
      RONDA_CHECK(place_of_.emplace(ids[i], Place{.bucket = place, .tensor = i}).second);
    }
    const size_t tensors = buckets[place].responses.size();
    slots_.push_back({std::move(buckets[place]), tensors});
  }
}

std::optional<ScheduleLock::Place> ScheduleLock::Submit(CacheId id) {
  const auto it = place_of_.find(id);
  if (it == place_of_.end()) {
    Leave();
    return std::nullopt;
  }
  SubmitAgain(it->second);
  return it->second;
}

void ScheduleLock::SubmitAgain(Place place) {
  Slot& slot = slots_[place.bucket];
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
  if (!MoveOn()) ++rounds_;
}

void ScheduleLock::Skip() {
  RONDA_CHECK(leaving_);
  MoveOn();
}

bool ScheduleLock::MoveOn() {
  if (++next_ < slots_.size()) return true;
  next_ = 0;
  return false;
}

}  // namespace ronda
