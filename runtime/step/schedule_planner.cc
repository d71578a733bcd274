// SPDX-License-Identifier: Apache-2.0

#include "runtime/step/schedule_planner.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace ronda {
namespace {

// A unit that is never divided: a single tensor, or all tensors of a group.
struct Item {
  std::vector<const StepTensor*> tensors;
  absl::Duration ready;  // when the last of them is
  size_t bytes = 0;

  const StepTensor& first() const { return *tensors.front(); }
};

struct PlannedBucket {
  const StepTensor* first;  // it stands for the kind of all
  absl::Duration ready;     // when its last item is ready
  size_t bytes = 0;
  std::vector<CacheId> ids;
};

// Successive items that were all seen together in some step (StepTensor), and their buckets. In that step, each item
// was submitted before any other was complete, so the items may run in any order.
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

// Returns the indices in `places` at which all tensors of `item` were seen together with the tensor `first`.
std::vector<size_t> Together(const StepTensor& first, const Item& item, std::vector<size_t> places) {
  std::erase_if(places, [&](size_t place) {
    return std::any_of(item.tensors.begin(), item.tensors.end(),
                       [&](const StepTensor* tensor) { return tensor->batches[place] != first.batches[place]; });
  });
  return places;
}

std::vector<Item> ItemsOf(const std::vector<StepTensor>& step) {
  std::vector<Item> items;
  std::map<std::string, size_t> item_of_group;
  for (const StepTensor& tensor : step) {
    size_t place = items.size();
    if (!tensor.group.empty()) place = item_of_group.emplace(tensor.group, place).first->second;
    if (place == items.size()) items.emplace_back();
    Item& item = items[place];
    item.tensors.push_back(&tensor);
    item.ready = std::max(item.ready, tensor.ready);
    item.bytes += tensor.bytes;
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.ready < b.ready; });
  return items;
}

bool CanShare(const StepTensor& tensor, const SchedulePlanner::Options& options) {
  return tensor.kind.has_value() && options.threshold > 0;
}

// Returns whether one bucket can hold the whole group.
bool CanBeOneBucket(const Item& item, const SchedulePlanner::Options& options) {
  return CanShare(item.first(), options) &&
         std::all_of(item.tensors.begin(), item.tensors.end(),
                     [&](const StepTensor* tensor) { return tensor->kind == item.first().kind; });
}

// Returns how many bytes a bucket must have before it may end early. `is_first` says whether the bucket is the first of
// its wave.
size_t MinBucketBytes(const PlannedBucket& bucket, bool is_first, const SchedulePlanner::Options& options) {
  const bool is_large = bucket.first->memory != Memory::kHost && !is_first;
  return options.min_bucket_bytes * (is_large ? SchedulePlanner::kDeviceFactor : 1);
}

// Returns the bucket of the wave to which `item` can be added, or nullptr if the item needs a new bucket.
PlannedBucket* FindBucket(const Item& item, const SchedulePlanner::Options& options, Wave* wave) {
  if (!CanShare(item.first(), options)) return nullptr;
  const auto same_kind = [&](const PlannedBucket& bucket) { return bucket.first->kind == item.first().kind; };
  const auto last = std::find_if(wave->buckets.rbegin(), wave->buckets.rend(), same_kind);
  if (last == wave->buckets.rend() || last->bytes + item.bytes > options.threshold) return nullptr;
  const bool is_small = last->bytes < MinBucketBytes(*last, last == std::prev(wave->buckets.rend()), options);
  return is_small || item.ready - last->ready <= options.hold ? &*last : nullptr;
}

void Take(const Item& item, const SchedulePlanner::Options& options, Wave* wave) {
  PlannedBucket* bucket = FindBucket(item, options, wave);
  if (bucket == nullptr) bucket = &wave->buckets.emplace_back(PlannedBucket{.first = &item.first()});
  bucket->ready = item.ready;
  bucket->bytes += item.bytes;
  for (const StepTensor* tensor : item.tensors) bucket->ids.push_back(tensor->id);
}

// Ends the wave. Appends its buckets to the plan, in the order in which they become ready.
void Finish(Wave* wave, StepBuckets* plan) {
  std::stable_sort(wave->buckets.begin(), wave->buckets.end(),
                   [](const PlannedBucket& a, const PlannedBucket& b) { return a.ready < b.ready; });
  for (PlannedBucket& bucket : wave->buckets) plan->push_back(std::move(bucket.ids));
  *wave = {};
}

}  // namespace

std::optional<StepBuckets> SchedulePlanner::Plan(const std::vector<StepTensor>& step) const {
  StepBuckets plan;
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

}  // namespace ronda
