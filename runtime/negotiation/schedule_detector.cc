#include "runtime/negotiation/schedule_detector.h"

#include <algorithm>
#include <utility>

namespace ronda {
namespace {

constexpr int kMostSteps = 1024;
constexpr size_t kBatchesKept = 8;  // of four steps; more would hardly say more about what is ready together

}  // namespace

void ScheduleDetector::Release(CacheId id, absl::Time now) {
  if (base_ == 0 || broken_) return;
  if (!released_.insert(id).second) {
    BeginWithThisList();
    // No rank can submit a tensor again before it has seen the list with it.
    if (!released_.insert(id).second) return Break();
  }
  current_.push_back({id, now, list_, waits_});
}

// A step of another kind than the last one ends in front of the list that is being made.
void ScheduleDetector::BeginWithThisList() {
  const auto first =
      std::find_if(current_.begin(), current_.end(), [&](const Released& entry) { return entry.list == list_; });
  std::vector<Released> rest(first, current_.end());
  current_.erase(first, current_.end());
  last_.clear();
  identical_ = 0;
  if (!current_.empty()) EndStep();
  current_ = std::move(rest);
  for (const Released& entry : current_) released_.insert(entry.id);
}

void ScheduleDetector::Break() {
  broken_ = true;
  Restart();
}

void ScheduleDetector::Restart() {
  current_.clear();
  released_.clear();
  last_.clear();
  identical_ = 0;
}

void ScheduleDetector::EndList() {
  ++list_;
  broken_ = false;
  if (EqualsLastStep()) EndStep();
}

bool ScheduleDetector::EqualsLastStep() const {
  return !current_.empty() && current_.size() == last_.size() &&
         std::all_of(current_.begin(), current_.end(), [&](const Released& entry) { return last_.contains(entry.id); });
}

void ScheduleDetector::EndStep() {
  const absl::Time begin = current_.front().time;
  for (size_t place = 0; place < current_.size(); ++place) {
    const Released& entry = current_[place];
    Seen& seen = last_[entry.id];
    seen.place = place;
    if (identical_ < kMostSteps) seen.total += entry.time - begin;
    if (seen.batches.size() == kBatchesKept) seen.batches.erase(seen.batches.begin(), seen.batches.begin() + 2);
    seen.batches.push_back(entry.list);
    seen.batches.push_back(entry.waits);
  }
  identical_ = std::min(identical_ + 1, kMostSteps);
  current_.clear();
  released_.clear();
}

std::vector<ScheduleDetector::Tensor> ScheduleDetector::step() const {
  std::vector<Tensor> tensors(last_.size());
  for (const auto& [id, seen] : last_) tensors[seen.place] = {id, seen.total / identical_, seen.batches};
  return tensors;
}

void ScheduleDetector::Left(uint64_t rounds) {
  needed_ = rounds < static_cast<uint64_t>(needed_) ? std::max(base_, std::min(2 * needed_, kMostSteps)) : base_;
  Restart();
}

}  // namespace ronda
