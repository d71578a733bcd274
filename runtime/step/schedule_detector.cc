// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/schedule_detector.h"

#include <algorithm>

namespace ronda {
namespace {

constexpr int kMostSteps = 1024;
constexpr size_t kBatchesKept = 8;  // two per step; more than four steps would add little

}  // namespace

void ScheduleDetector::Release(CacheId id, absl::Time now) {
  if (base_ == 0 || broken_) return;
  if (!released_.insert(id).second) {
    BeginWithThisList();
    // A rank submits a tensor again only after it has seen the list that released the tensor, so no tensor occurs twice
    // in one list.
    if (!released_.insert(id).second) return Break();
  }
  current_.push_back({id, now, list_, waits_});
}

// Ends the step before the current list, because the step differs from the previous one.
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

std::vector<StepTensor> ScheduleDetector::step() const {
  std::vector<StepTensor> tensors(last_.size());
  for (const auto& [id, seen] : last_) {
    tensors[seen.place] = {.id = id, .ready = seen.total / identical_, .batches = seen.batches};
  }
  return tensors;
}

void ScheduleDetector::Unlocked(uint64_t rounds) {
  if (rounds >= static_cast<uint64_t>(needed_)) needed_ = base_;
  Restart();
}

void ScheduleDetector::Distrust() { needed_ = std::max(base_, std::min(2 * needed_, kMostSteps)); }

}  // namespace ronda
