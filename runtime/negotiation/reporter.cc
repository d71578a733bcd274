#include "runtime/negotiation/reporter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {

void Reporter::Submit(TensorRequest request) {
  const std::optional<CacheId> id = cache_ ? cache_->Find(request, options_.rank) : std::nullopt;
  if (id) {
    report_.cached.push_back(*id);
    by_id_.emplace(std::move(request.name), *id);
  } else {
    report_.requests.push_back(std::move(request));
  }
}

RankReport Reporter::TakeReport() { return std::exchange(report_, {}); }

absl::StatusOr<std::shared_ptr<const Response>> Reporter::Resolve(const Execution& execution) {
  if (const Response* response = std::get_if<Response>(&execution)) {
    const bool gathers = response->request.op == OpType::kAllgather;
    if (response->first_dims.size() != (gathers ? static_cast<size_t>(options_.world_size) : 0)) {
      return absl::InvalidArgumentError(absl::StrCat("response for tensor '", response->request.name, "' has ",
                                                     response->first_dims.size(), " first dimensions for ",
                                                     options_.world_size, " ranks"));
    }
    return std::make_shared<const Response>(*response);
  }
  const CacheId id = std::get<CacheId>(execution);
  std::shared_ptr<const Response> cached = cache_->Get(id);
  if (cached == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("response list names id ", id, ", which is not cached"));
  }
  by_id_.erase(cached->request.name);
  return cached;
}

absl::StatusOr<Reporter::Work> Reporter::Apply(const ResponseList& list) {
  Work work;
  work.job = list.job;
  work.settings = list.settings;
  if (list.settings) cache_.emplace(list.settings->cache_capacity);
  if (!cache_) return absl::InvalidArgumentError("the first response list does not begin with the job's settings");
  for (const TensorError& error : list.errors) {
    if (!std::binary_search(error.ranks.begin(), error.ranks.end(), options_.rank)) continue;
    by_id_.erase(error.name);
    work.errors.push_back(error);
  }
  for (const Bucket& bucket : list.buckets) {
    AgreedBucket& resolved = work.buckets.emplace_back();
    resolved.joined = bucket.joined;
    resolved.absent = bucket.absent;
    for (const Execution& execution : bucket.executions) {
      RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const Response> response, Resolve(execution));
      resolved.responses.push_back(std::move(response));
    }
  }
  RONDA_ASSIGN_OR_RETURN(const auto evicted, cache_->Apply(list));
  for (const ResponseCache::Evicted& entry : evicted) {
    // The coordinator has forgotten, or will ignore, a report by this id: say it again in full.
    if (by_id_.erase(entry.response->request.name) == 0) continue;
    std::erase(report_.cached, entry.id);
    report_.requests.push_back(RequestOf(*entry.response, options_.rank));
  }
  return work;
}

}  // namespace ronda
