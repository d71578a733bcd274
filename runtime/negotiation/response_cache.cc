// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/response_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

bool FirstDimensionFits(const Response& response, const TensorRequest& request, RankId rank, const Group& members) {
  const TensorRequest& agreed = response.request;
  switch (TraitsOf(agreed.op).first_dimension) {
    case FirstDimension::kGathered: {
      const std::optional<int> position = members.PositionOf(rank);
      return position && request.shape.front() == response.first_dims[*position];
    }
    case FirstDimension::kOfRoot:
      return rank != agreed.root || request.shape.front() == agreed.shape.front();
    case FirstDimension::kLocal:
      return true;
    case FirstDimension::kShared:
      break;
  }
  return agreed.shape.empty() || request.shape.front() == agreed.shape.front();
}

// Returns whether `response` is the answer to `request`. The function does not build the rank's request, because it
// runs once per tensor in each training step.
bool Answers(const Response& response, const TensorRequest& request, RankId rank, const Group& members) {
  const TensorRequest& agreed = response.request;
  if (!SameButShape(agreed, request) || request.shape.size() != agreed.shape.size()) return false;
  for (size_t i = 1; i < agreed.shape.size(); ++i) {
    if (request.shape[i] != agreed.shape[i]) return false;
  }
  return FirstDimensionFits(response, request, rank, members);
}

}  // namespace

TensorRequest RequestOf(const Response& response, RankId rank, const Group& members) {
  TensorRequest request = response.request;
  if (!response.first_dims.empty()) request.shape.front() = response.first_dims[*members.PositionOf(rank)];
  return request;
}

std::optional<CacheId> ResponseCache::Find(const TensorRequest& request, RankId rank, const Group& members) const {
  const auto it = by_name_.find(request.key());
  if (it == by_name_.end()) return std::nullopt;
  if (!Answers(*entries_.at(it->second).response, request, rank, members)) return std::nullopt;
  return it->second;
}

std::shared_ptr<const Response> ResponseCache::Get(CacheId id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.response;
}

absl::Status ResponseCache::CheckIds(const ResponseList& list) const {
  for (const Bucket& bucket : list.buckets) {
    for (const Execution& execution : bucket.executions) {
      const CacheId* id = std::get_if<CacheId>(&execution);
      if (id != nullptr && !entries_.contains(*id)) {
        return absl::InvalidArgumentError(absl::StrCat("response list names id ", *id, ", which is not cached"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ResponseCache::Evicted>> ResponseCache::Apply(const ResponseList& list) {
  RONDA_RETURN_IF_ERROR(CheckIds(list));
  std::vector<Evicted> evicted;
  if (capacity_ == 0) return evicted;
  for (const Bucket& bucket : list.buckets) {
    for (const Execution& execution : bucket.executions) Store(execution, &evicted);
  }
  return evicted;
}

void ResponseCache::Store(const Execution& execution, std::vector<Evicted>* evicted) {
  if (const CacheId* id = std::get_if<CacheId>(&execution)) {
    // An earlier execution in this list may have evicted the entry.
    if (const auto it = entries_.find(*id); it != entries_.end()) {
      by_age_.splice(by_age_.end(), by_age_, it->second.age);
    }
    return;
  }
  const Response& response = std::get<Response>(execution);
  if (TraitsOf(response.request.op).cached()) Insert(response, evicted);
  if (response.request.op == OpType::kRemoveProcessSet) EvictAllOf(response.request.subject, evicted);
}

void ResponseCache::Insert(const Response& response, std::vector<Evicted>* evicted) {
  if (const auto it = by_name_.find(response.request.key()); it != by_name_.end()) Evict(it->second, evicted);
  if (entries_.size() == capacity_) Evict(by_age_.front(), evicted);
  const CacheId id = next_id_++;
  entries_.emplace(id, Entry{std::make_shared<const Response>(response), by_age_.insert(by_age_.end(), id)});
  by_name_.emplace(response.request.key(), id);
}

void ResponseCache::EvictAllOf(ProcessSetId set, std::vector<Evicted>* evicted) {
  std::vector<CacheId> ids;
  for (CacheId id : by_age_) {
    if (entries_.at(id).response->request.process_set == set) ids.push_back(id);
  }
  for (CacheId id : ids) Evict(id, evicted);
}

void ResponseCache::Evict(CacheId id, std::vector<Evicted>* evicted) {
  const auto it = entries_.find(id);
  evicted->push_back({id, std::move(it->second.response)});
  by_name_.erase(evicted->back().response->request.key());
  by_age_.erase(it->second.age);
  entries_.erase(it);
}

}  // namespace ronda
