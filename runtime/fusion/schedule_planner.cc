#include "runtime/fusion/schedule_planner.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "runtime/fusion/tensor_kind.h"

namespace ronda {
namespace {

// What is never divided: a tensor, or all tensors of a group.
struct Item {
  std::vector<const StepTensor*> tensors;
  absl::Duration ready;  // of the last of them
  size_t bytes = 0;

  const TensorRequest& request() const { return tensors.front()->response->request; }
};

// A bucket that can still grow.
struct OpenBucket {
  const TensorRequest* kind;  // that of its first tensor
  size_t index;               // in the plan
  absl::Duration ready;       // of its last item
  size_t bytes;
};

// Successive items that were all together in some step: each was submitted before any other was complete, so the order
// among them is free.
struct Wave {
  const StepTensor* first = nullptr;
  std::vector<size_t> steps;  // in which they were together
  std::vector<OpenBucket> open;
};

std::vector<size_t> AllSteps(const StepTensor& tensor) {
  std::vector<size_t> steps(tensor.batches.size());
  for (size_t step = 0; step < steps.size(); ++step) steps[step] = step;
  return steps;
}

// Those of `steps` in which all of `item` was in the list of `first`.
std::vector<size_t> Together(const StepTensor& first, const Item& item, std::vector<size_t> steps) {
  std::erase_if(steps, [&](size_t step) {
    return std::any_of(item.tensors.begin(), item.tensors.end(),
                       [&](const StepTensor* tensor) { return tensor->batches[step] != first.batches[step]; });
  });
  return steps;
}

std::vector<Item> ItemsOf(const std::vector<StepTensor>& step) {
  std::vector<Item> items;
  TensorKeyMap<size_t> item_of_group;
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
    item.bytes += InputBytes(request);
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.ready < b.ready; });
  return items;
}

// Whether one bucket can hold it.
bool IsOfOneKind(const Item& item) {
  return std::all_of(item.tensors.begin(), item.tensors.end(),
                     [&](const StepTensor* tensor) { return SameKind(item.request(), tensor->response->request); });
}

// Takes `item` into the wave, or begins another one with it.
void Extend(const Item& item, Wave* wave) {
  std::vector<size_t> steps;
  if (wave->first != nullptr) steps = Together(*wave->first, item, wave->steps);
  if (steps.empty()) {
    *wave = {.first = item.tensors.front()};
    steps = Together(*wave->first, item, AllSteps(*wave->first));
  }
  wave->steps = std::move(steps);
}

// Which bucket takes `item`: an open one, or the `next` one, which is then open.
size_t Place(const Item& item, size_t next, const SchedulePlanner::Options& options, std::vector<OpenBucket>* open) {
  const auto same_kind = [&](const OpenBucket& bucket) { return SameKind(*bucket.kind, item.request()); };
  const auto found = std::find_if(open->begin(), open->end(), same_kind);
  if (found == open->end()) {
    open->push_back({&item.request(), next, item.ready, item.bytes});
    return next;
  }
  const bool is_worth_it = found->bytes < options.min_bucket_bytes || item.ready - found->ready <= options.hold;
  if (is_worth_it && found->bytes + item.bytes <= options.threshold) {
    found->bytes += item.bytes;
    found->ready = item.ready;
  } else {
    *found = {&item.request(), next, item.ready, item.bytes};
  }
  return found->index;
}

}  // namespace

std::optional<std::vector<std::vector<CacheId>>> SchedulePlanner::Plan(const std::vector<StepTensor>& step) const {
  std::vector<std::vector<CacheId>> buckets;
  Wave wave;
  for (const Item& item : ItemsOf(step)) {
    const bool fuses = Fuses(item.request().op) && options_.threshold > 0;
    if (item.tensors.size() > 1 && !(fuses && IsOfOneKind(item))) return std::nullopt;
    Extend(item, &wave);
    const size_t index = fuses ? Place(item, buckets.size(), options_, &wave.open) : buckets.size();
    if (index == buckets.size()) buckets.emplace_back();
    for (const StepTensor* tensor : item.tensors) buckets[index].push_back(tensor->id);
  }
  return buckets;
}

}  // namespace ronda
