#include "runtime/negotiation/response_cache.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Compares without building the rank's request: this runs once a tensor and step.
bool Answers(const Response& response, const TensorRequest& request, RankId rank) {
  const TensorRequest& agreed = response.request;
  if (response.first_dims.empty()) return agreed == request;
  if (request.shape.size() != agreed.shape.size() || request.shape.front() != response.first_dims[rank]) return false;
  for (size_t i = 1; i < agreed.shape.size(); ++i) {
    if (request.shape[i] != agreed.shape[i]) return false;
  }
  return request.op == agreed.op && request.dtype == agreed.dtype && request.name == agreed.name;
}

}  // namespace

TensorRequest RequestOf(const Response& response, RankId rank) {
  TensorRequest request = response.request;
  if (!response.first_dims.empty()) request.shape.front() = response.first_dims[rank];
  return request;
}

std::optional<CacheId> ResponseCache::Find(const TensorRequest& request, RankId rank) const {
  const auto it = by_name_.find(request.name);
  if (it == by_name_.end()) return std::nullopt;
  if (!Answers(*entries_.at(it->second).response, request, rank)) return std::nullopt;
  return it->second;
}

std::shared_ptr<const Response> ResponseCache::Get(CacheId id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? nullptr : it->second.response;
}

absl::StatusOr<std::vector<ResponseCache::Evicted>> ResponseCache::Apply(const ResponseList& list) {
  for (const Bucket& bucket : list.buckets) {
    for (const Execution& execution : bucket.executions) {
      const CacheId* id = std::get_if<CacheId>(&execution);
      if (id != nullptr && !entries_.contains(*id)) {
        return absl::InvalidArgumentError(absl::StrCat("response list names id ", *id, ", which is not cached"));
      }
    }
  }
  std::vector<Evicted> evicted;
  if (capacity_ == 0) return evicted;
  for (const Bucket& bucket : list.buckets) {
    for (const Execution& execution : bucket.executions) {
      if (const CacheId* id = std::get_if<CacheId>(&execution)) {
        // It may have been evicted by an insertion for an earlier execution of this very list.
        if (const auto it = entries_.find(*id); it != entries_.end()) {
          by_age_.splice(by_age_.end(), by_age_, it->second.age);
        }
      } else {
        Insert(std::get<Response>(execution), &evicted);
      }
    }
  }
  return evicted;
}

void ResponseCache::Insert(const Response& response, std::vector<Evicted>* evicted) {
  if (const auto it = by_name_.find(response.request.name); it != by_name_.end()) Evict(it->second, evicted);
  if (entries_.size() == capacity_) Evict(by_age_.front(), evicted);
  const CacheId id = next_id_++;
  entries_.emplace(id, Entry{std::make_shared<const Response>(response), by_age_.insert(by_age_.end(), id)});
  by_name_.emplace(response.request.name, id);
}

void ResponseCache::Evict(CacheId id, std::vector<Evicted>* evicted) {
  const auto it = entries_.find(id);
  evicted->push_back({id, std::move(it->second.response)});
  by_name_.erase(evicted->back().response->request.name);
  by_age_.erase(it->second.age);
  entries_.erase(it);
}

}  // namespace ronda
