// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/schedule_planner.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace ronda {
namespace {

// A bucket that can still grow.
struct OpenBucket {
  std::shared_ptr<const Response> first;  // of its tensors; it stands for their kind
  size_t index;                           // in the plan
  size_t bytes;
};

Execution ExecutionOf(const Agreed& tensor) {
  if (tensor.cached_as != 0) return tensor.cached_as;
  return *tensor.response;
}

}  // namespace

std::vector<Bucket> FusionPlanner::Plan(std::vector<Agreed> agreed) const {
  std::vector<Bucket> plan;
  std::vector<OpenBucket> open;
  for (Agreed& tensor : agreed) {
    const TensorRequest& request = tensor.response->request;
    size_t bytes = 0;
    if (TraitsOf(request.op).fuses) {
      const auto same_kind = [&](const OpenBucket& bucket) {
        return SameKind(bucket.first->request, request) && plan[bucket.index].joined == tensor.joined &&
               plan[bucket.index].absent == tensor.absent;
      };
      bytes = TensorBytes(request);
      const auto found = std::find_if(open.begin(), open.end(), same_kind);
      if (found != open.end() && found->bytes + bytes <= options_.threshold) {
        found->bytes += bytes;
        plan[found->index].executions.push_back(ExecutionOf(tensor));
        continue;
      }
      if (found != open.end()) open.erase(found);
      open.push_back({tensor.response, plan.size(), bytes});
    }
    plan.push_back({{ExecutionOf(tensor)}, std::move(tensor.joined), tensor.absent});
  }
  return plan;
}

namespace {

constexpr int kMostSteps = 1024;
constexpr size_t kBatchesKept = 8;  // two per step; more than four steps would add little

// A unit that is never divided: a single tensor, or all tensors of a group.
struct Item {
  std::vector<const StepTensor*> tensors;
  absl::Duration ready;  // when the last of them is
  size_t bytes = 0;

  const TensorRequest& request() const { return tensors.front()->response->request; }
};

struct PlannedBucket {
  const TensorRequest* kind;  // the request of its first tensor
  absl::Duration ready;       // when its last item is ready
  size_t bytes = 0;
  std::vector<CacheId> ids;
};

// Successive items that were all together in some step, and their buckets. Each item was submitted before any other was
// complete, so their order is free.
struct Wave {
  const StepTensor* first = nullptr;
  std::vector<size_t> places;  // indices of StepTensor::batches at which all items are equal
  std::vector<PlannedBucket> buckets;
};

std::vector<size_t> AllPlaces(const StepTensor& tensor) {
  std::vector<size_t> places(tensor.batches.size());
  for (size_t place = 0; place < places.size(); ++place) places[place] = place;
  return places;
}

// Returns those of `places` at which all tensors of `item` were together with `first`.
std::vector<size_t> Together(const StepTensor& first, const Item& item, std::vector<size_t> places) {
  std::erase_if(places, [&](size_t place) {
    return std::any_of(item.tensors.begin(), item.tensors.end(),
                       [&](const StepTensor* tensor) { return tensor->batches[place] != first.batches[place]; });
  });
  return places;
}

std::vector<Item> ItemsOf(const std::vector<StepTensor>& step) {
  std::vector<Item> items;
  std::map<TensorKey, size_t> item_of_group;
  for (const StepTensor& tensor : step) {
    const TensorRequest& request = tensor.response->request;
    size_t place = items.size();
    if (!request.group.empty()) {
      place = item_of_group.emplace(TensorKey(request.process_set, request.group), place).first->second;
    }
    if (place == items.size()) items.emplace_back();
    Item& item = items[place];
    item.tensors.push_back(&tensor);
    item.ready = std::max(item.ready, tensor.ready);
    item.bytes += TensorBytes(request);
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.ready < b.ready; });
  return items;
}

// Whether one bucket can hold a group.
bool CanBeOneBucket(const Item& item, const SchedulePlanner::Options& options) {
  if (!TraitsOf(item.request().op).fuses || options.threshold == 0) return false;
  return std::all_of(item.tensors.begin(), item.tensors.end(),
                     [&](const StepTensor* tensor) { return SameKind(item.request(), tensor->response->request); });
}

// How many bytes a bucket needs before it may end early. `is_first`: it is the first bucket of its wave.
size_t MinBucketBytes(const PlannedBucket& bucket, bool is_first, const SchedulePlanner::Options& options) {
  const bool is_large = bucket.kind->memory != Memory::kHost && !is_first;
  return options.min_bucket_bytes * (is_large ? SchedulePlanner::kDeviceFactor : 1);
}

// The bucket of the wave that takes `item`; nullptr if the item needs a new one.
PlannedBucket* FindBucket(const Item& item, const SchedulePlanner::Options& options, Wave* wave) {
  if (!TraitsOf(item.request().op).fuses || options.threshold == 0) return nullptr;
  const auto same_kind = [&](const PlannedBucket& bucket) { return SameKind(*bucket.kind, item.request()); };
  const auto last = std::find_if(wave->buckets.rbegin(), wave->buckets.rend(), same_kind);
  if (last == wave->buckets.rend() || last->bytes + item.bytes > options.threshold) return nullptr;
  const bool is_small = last->bytes < MinBucketBytes(*last, last == std::prev(wave->buckets.rend()), options);
  return is_small || item.ready - last->ready <= options.hold ? &*last : nullptr;
}

void Take(const Item& item, const SchedulePlanner::Options& options, Wave* wave) {
  PlannedBucket* bucket = FindBucket(item, options, wave);
  if (bucket == nullptr) bucket = &wave->buckets.emplace_back(PlannedBucket{.kind = &item.request()});
  bucket->ready = item.ready;
  bucket->bytes += item.bytes;
  for (const StepTensor* tensor : item.tensors) bucket->ids.push_back(tensor->id);
}

// Ends the wave: appends its buckets to the plan, in the order in which they become ready.
void Finish(Wave* wave, std::vector<std::vector<CacheId>>* plan) {
  std::stable_sort(wave->buckets.begin(), wave->buckets.end(),
                   [](const PlannedBucket& a, const PlannedBucket& b) { return a.ready < b.ready; });
  for (PlannedBucket& bucket : wave->buckets) plan->push_back(std::move(bucket.ids));
  *wave = {};
}

}  // namespace

void ScheduleDetector::Release(CacheId id, absl::Time now) {
  if (base_ == 0 || broken_) return;
  if (!released_.insert(id).second) {
    BeginWithThisList();
    // A rank submits a tensor again only after it has seen the list with it, so no tensor occurs twice in one list.
    if (!released_.insert(id).second) return Break();
  }
  current_.push_back({id, now, list_, waits_});
}

// The step differs from the last one. It ends before the current list.
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

void ScheduleDetector::Unlocked(uint64_t rounds) {
  if (rounds >= static_cast<uint64_t>(needed_)) needed_ = base_;
  Restart();
}

void ScheduleDetector::Distrust() { needed_ = std::max(base_, std::min(2 * needed_, kMostSteps)); }

std::optional<std::vector<std::vector<CacheId>>> SchedulePlanner::Plan(const std::vector<StepTensor>& step) const {
  std::vector<std::vector<CacheId>> plan;
  Wave wave;
  const std::vector<Item> items = ItemsOf(step);
  for (const Item& item : items) {
    if (item.tensors.size() > 1 && !CanBeOneBucket(item, options_)) return std::nullopt;
    std::vector<size_t> places;
    if (wave.first != nullptr) places = Together(*wave.first, item, wave.places);
    if (places.empty()) {
      Finish(&wave, &plan);
      wave.first = item.tensors.front();
      places = Together(*wave.first, item, AllPlaces(*wave.first));
    }
    wave.places = std::move(places);
    Take(item, options_, &wave);
  }
  Finish(&wave, &plan);
  return plan;
}

namespace {

std::unordered_map<CacheId, uint64_t> TensorsOf(const ScheduleMemory::Buckets& buckets) {
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
  for (Entry& entry : known_) Note(id, &entry);
}

void ScheduleMemory::Note(CacheId id, Entry* entry) const {
  const auto it = entry->released.find(id);
  if (it == entry->released.end()) return;
  if (it->second >= entry->first_list) {
    // The next round began before this one was complete. It began with this list at the earliest.
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

const ScheduleMemory::Buckets* ScheduleMemory::EndList() {
  ++list_;
  const bool others = std::exchange(others_, false);
  // If several are complete, the step was the largest: it contains all tensors of the others.
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

void ScheduleMemory::Begin(const Buckets& buckets) {
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
  // A damaged recording may contain a higher number.
  const uint64_t carried_out = std::min<uint64_t>(progress.buckets, last.buckets.size());
  for (uint64_t bucket = 0; bucket < carried_out; ++bucket) {
    for (CacheId id : last.buckets[bucket]) {
      for (Entry& entry : known_) Note(id, &entry);
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
