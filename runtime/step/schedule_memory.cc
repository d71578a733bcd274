// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/schedule_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ronda {
namespace {

std::unordered_map<CacheId, uint64_t> TensorsOf(const StepBuckets& buckets) {
  std::unordered_map<CacheId, uint64_t> tensors;
  for (const std::vector<CacheId>& bucket : buckets) {
    for (CacheId id : bucket) tensors.emplace(id, 0);
  }
  return tensors;
}

}  // namespace

void ScheduleMemory::Release(CacheId id) {
  if (known_.empty()) return;
  others_ |= !known_.front().released.contains(id);
  for (Entry& entry : known_) Record(id, &entry);
}

void ScheduleMemory::Record(CacheId id, Entry* entry) const {
  const auto it = entry->released.find(id);
  if (it == entry->released.end()) return;
  if (it->second >= entry->first_list) {
    // This tensor has been released again before all tensors of the schedule were released. So a new round has begun,
    // which is counted from the current list on.
    entry->first_list = list_;
    entry->missing = static_cast<size_t>(std::count_if(entry->released.begin(), entry->released.end(),
                                                       [&](const auto& tensor) { return tensor.second < list_; }));
    if (it->second == list_) return;
  }
  it->second = list_;
  --entry->missing;
}

void ScheduleMemory::Restart(Entry* entry) const {
  entry->first_list = list_;
  entry->missing = entry->released.size();
}

const StepBuckets* ScheduleMemory::EndList() {
  ++list_;
  const bool others = std::exchange(others_, false);
  // If several schedules are complete, the largest one is the program's step, because it contains all tensors of the
  // others.
  Entry* next = nullptr;
  for (Entry& entry : known_) {
    if (entry.missing > 0) continue;
    if (next == nullptr || entry.released.size() > next->released.size()) next = &entry;
    Restart(&entry);
  }
  guesses_ = next == nullptr;
  if (next == nullptr && others && is_front_last_ && may_guess_ && IsUntouched(known_.front())) {
    next = &known_.front();
  }
  return next == nullptr ? nullptr : &next->buckets;
}

void ScheduleMemory::Begin(const StepBuckets& buckets) {
  is_front_last_ = false;
  const auto known =
      std::find_if(known_.begin(), known_.end(), [&](const Entry& entry) { return &entry.buckets == &buckets; });
  guessed_ = known != known_.end() && guesses_;
  if (known != known_.end()) {
    known_.splice(known_.begin(), known_, known);
    return;
  }
  Entry entry = {.buckets = buckets, .released = TensorsOf(buckets)};
  const auto is_same = [&](const Entry& other) {
    return other.released.size() == entry.released.size() &&
           std::all_of(entry.released.begin(), entry.released.end(),
                       [&](const auto& tensor) { return other.released.contains(tensor.first); });
  };
  known_.remove_if(is_same);
  known_.push_front(std::move(entry));
  if (known_.size() > kCapacity) known_.pop_back();
}

void ScheduleMemory::Unlocked(const ScheduleProgress& progress) {
  Entry& last = known_.front();
  const bool has_lasted = progress.rounds >= lasting_rounds_;
  const bool was_wrong_guess = guessed_ && progress.rounds == 0;
  may_guess_ = has_lasted;
  for (Entry& entry : known_) Restart(&entry);
  // The number of buckets may be too large if it comes from a damaged recording.
  const uint64_t carried_out = std::min<uint64_t>(progress.buckets, last.buckets.size());
  for (uint64_t bucket = 0; bucket < carried_out; ++bucket) {
    for (CacheId id : last.buckets[bucket]) {
      for (Entry& entry : known_) Record(id, &entry);
    }
  }
  ++list_;
  others_ = false;
  is_front_last_ = has_lasted || was_wrong_guess;
  if (!is_front_last_) known_.pop_front();
}

void ScheduleMemory::Distrust() {
  if (std::exchange(is_front_last_, false)) known_.pop_front();
}

void ScheduleMemory::Forget(CacheId id) {
  if (!known_.empty() && known_.front().released.contains(id)) is_front_last_ = false;
  known_.remove_if([&](const Entry& entry) { return entry.released.contains(id); });
}

void ScheduleMemory::Clear() {
  known_.clear();
  is_front_last_ = false;
}

}  // namespace ronda
