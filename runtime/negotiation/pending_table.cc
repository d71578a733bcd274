#include "runtime/negotiation/pending_table.h"

#include <algorithm>
#include <utility>

#include "runtime/base/logging.h"
#include "runtime/negotiation/response_cache.h"

namespace ronda {

void PendingTensor::SpellOut() {
  if (!cached) return;
  spelled = RequestOf(*cached, first_rank, *participants);
  first_dims = cached->first_dims;
  cached_as = 0;
  cached = nullptr;
}

PendingTensor* PendingTable::Find(TensorKeyView key) const {
  const auto it = tensors_.find(key);
  return it == tensors_.end() ? nullptr : it->get();
}

PendingTensor* PendingTable::FindById(CacheId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

PendingTensor* PendingTable::Start(const TensorRequest& request) {
  std::unique_ptr<PendingTensor> tensor = Fresh();
  tensor->spelled = request;
  return Insert(std::move(tensor));
}

PendingTensor* PendingTable::Start(CacheId id, std::shared_ptr<const Response> response) {
  std::unique_ptr<PendingTensor> tensor = Fresh();
  tensor->cached = std::move(response);
  tensor->cached_as = id;
  PendingTensor* inserted = Insert(std::move(tensor));
  by_id_.emplace(id, inserted);
  return inserted;
}

void PendingTable::SpellOut(PendingTensor* tensor) {
  by_id_.erase(tensor->cached_as);
  tensor->SpellOut();
}

std::unique_ptr<PendingTensor> PendingTable::Extract(PendingTensor* tensor) {
  if (tensor->cached_as != 0) by_id_.erase(tensor->cached_as);
  const auto it = tensors_.find(tensor->request().key());
  RONDA_CHECK(it != tensors_.end() && it->get() == tensor);
  return std::move(tensors_.extract(it).value());
}

void PendingTable::Recycle(std::unique_ptr<PendingTensor> tensor) {
  // More than were ever pending at once are never made, so this list is bounded too.
  spare_.push_back(std::move(tensor));
}

void PendingTable::Clear() {
  by_id_.clear();
  while (!tensors_.empty()) Recycle(std::move(tensors_.extract(tensors_.begin()).value()));
}

std::vector<PendingTensor*> PendingTable::Select(const std::function<bool(const PendingTensor&)>& wanted) const {
  std::vector<PendingTensor*> selected;
  for (const std::unique_ptr<PendingTensor>& tensor : tensors_) {
    if (wanted(*tensor)) selected.push_back(tensor.get());
  }
  std::sort(selected.begin(), selected.end(),
            [](const PendingTensor* a, const PendingTensor* b) { return a->sequence < b->sequence; });
  return selected;
}

std::unique_ptr<PendingTensor> PendingTable::Fresh() {
  if (spare_.empty()) return std::make_unique<PendingTensor>();
  std::unique_ptr<PendingTensor> tensor = std::move(spare_.back());
  spare_.pop_back();
  tensor->cached = nullptr;
  tensor->cached_as = 0;
  tensor->first_dims.clear();
  tensor->mismatch.clear();
  return tensor;
}

PendingTensor* PendingTable::Insert(std::unique_ptr<PendingTensor> tensor) {
  tensor->sequence = next_sequence_++;
  PendingTensor* raw = tensor.get();
  RONDA_CHECK(tensors_.insert(std::move(tensor)).second);
  return raw;
}

}  // namespace ronda
