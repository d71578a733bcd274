#include "runtime/negotiation/negotiator.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/negotiation/mismatch.h"

namespace ronda {
namespace {

std::string DescribeTensor(const TensorRequest& request) {
  if (request.op == OpType::kBarrier) return "the barrier";
  return absl::StrCat("tensor '", request.name, "' (", Name(request.op), " of ", Name(request.dtype), " ",
                      ToString(request.shape), ")");
}

}  // namespace

Negotiator::Negotiator(Options options)
    : options_(options),
      planner_(options.fusion),
      cache_(options.cache_capacity),
      identities_(options.world_size),
      left_(options.world_size, false) {}

absl::Status Negotiator::Add(RankId rank, RankReport report, absl::Time now) {
  if (left_[rank]) return absl::InvalidArgumentError(absl::StrCat(Describe(rank), " reports after it has left"));
  if (!report.identity.empty()) identities_[rank] = std::move(report.identity);
  for (CacheId id : report.cached) {
    // An unknown id has been evicted while the report was on its way: the rank will report in full.
    const std::shared_ptr<const Response> response = cache_.Get(id);
    if (response == nullptr) continue;
    RONDA_RETURN_IF_ERROR(Submit(rank, RequestOf(*response, rank), id, now));
  }
  for (const TensorRequest& request : report.requests) {
    RONDA_RETURN_IF_ERROR(Submit(rank, request, 0, now));
  }
  if (report.membership == RankReport::Membership::kLeaving) Leave(rank, now);
  return absl::OkStatus();
}

absl::Status Negotiator::Submit(RankId rank, const TensorRequest& request, CacheId id, absl::Time now) {
  if (request.op == OpType::kBroadcast && request.root >= options_.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(rank), " broadcasts from root ", request.root, " of ", options_.world_size, " ranks"));
  }
  const auto [it, is_new] = pending_.try_emplace(request.name);
  Pending& pending = it->second;
  if (is_new) {
    pending.request = request;
    pending.first_rank = rank;
    pending.since = now;
    pending.ranks.resize(options_.world_size, Submitted::kNo);
    pending.cached_as = id;
  }
  if (pending.ranks[rank] != Submitted::kNo) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(rank), " reports tensor '", request.name, "' twice"));
  }
  Merge(rank, request, id, &pending);
  if (pending.submitted == options_.world_size) {
    Conclude(request.name);
  } else if (leavers_ > 0) {
    FailForDeparture(request.name);
  }
  return absl::OkStatus();
}

void Negotiator::Merge(RankId rank, const TensorRequest& request, CacheId id, Pending* pending) {
  pending->ranks[rank] = id != 0 ? Submitted::kById : Submitted::kInFull;
  ++pending->submitted;
  if (request.op == OpType::kAllgather) {
    pending->first_dims.resize(options_.world_size);
    pending->first_dims[rank] = request.shape.front();
  }
  if (id != 0 && id == pending->cached_as) return;
  pending->cached_as = 0;
  if (request == pending->request || !pending->mismatch.empty()) return;
  const RankId first = pending->first_rank;
  const auto mismatch = first < rank ? DescribeMismatch(pending->request, Describe(first), request, Describe(rank))
                                     : DescribeMismatch(request, Describe(rank), pending->request, Describe(first));
  pending->mismatch = mismatch.value_or("");
}

void Negotiator::Conclude(const std::string& name) {
  auto node = pending_.extract(name);
  Pending& pending = node.mapped();
  if (!pending.mismatch.empty()) {
    TensorError& error = errors_.emplace_back();
    error.name = name;
    error.status = absl::FailedPreconditionError(
        absl::StrCat("ranks disagree: ", pending.mismatch, "; submit the same on every rank"));
    for (RankId rank = 0; rank < options_.world_size; ++rank) error.ranks.push_back(rank);
    return;
  }
  Agreed& agreed = agreed_.emplace_back();
  agreed.response = {std::move(pending.request), std::move(pending.first_dims)};
  if (pending.cached_as != 0) {
    agreed.execution = pending.cached_as;
  } else {
    agreed.execution = agreed.response;
  }
}

void Negotiator::Leave(RankId rank, absl::Time now) {
  left_[rank] = true;
  if (leavers_++ == 0) first_leave_ = now;
  std::vector<std::string> lacking;
  for (const auto& [name, pending] : pending_) {
    if (pending.ranks[rank] == Submitted::kNo) lacking.push_back(name);
  }
  std::sort(lacking.begin(), lacking.end());
  for (const std::string& name : lacking) FailForDeparture(name);
}

void Negotiator::FailForDeparture(const std::string& name) {
  const Pending& pending = pending_.at(name);
  for (RankId rank = 0; rank < options_.world_size; ++rank) {
    if (!left_[rank] || pending.ranks[rank] != Submitted::kNo) continue;
    Fail(name, absl::UnavailableError(absl::StrCat(Describe(rank), " has shut down and will not submit ",
                                                   DescribeTensor(pending.request))));
    return;
  }
}

void Negotiator::Fail(absl::string_view name, absl::Status status) {
  auto node = pending_.extract(name);
  if (node.empty()) return;
  TensorError& error = errors_.emplace_back();
  error.name = std::string(name);
  error.status = std::move(status);
  for (RankId rank = 0; rank < options_.world_size; ++rank) {
    if (node.mapped().ranks[rank] != Submitted::kNo) error.ranks.push_back(rank);
  }
}

ResponseList Negotiator::TakeResponses() {
  ResponseList list;
  list.errors = std::exchange(errors_, {});
  list.buckets = planner_.Plan(std::exchange(agreed_, {}));
  const auto evicted = cache_.Apply(list);
  RONDA_CHECK(evicted.ok());
  for (const ResponseCache::Evicted& entry : *evicted) ForgetReportsById(entry.response->request.name);
  if (leavers_ == options_.world_size) list.job = ResponseList::Job::kEnds;
  return list;
}

void Negotiator::ForgetReportsById(const std::string& name) {
  const auto it = pending_.find(name);
  if (it == pending_.end()) return;
  for (Submitted& submitted : it->second.ranks) {
    if (submitted != Submitted::kById) continue;
    submitted = Submitted::kNo;
    --it->second.submitted;
  }
  it->second.cached_as = 0;
  if (it->second.submitted == 0) pending_.erase(it);
}

std::vector<Negotiator::Waiting> Negotiator::WaitingSince(absl::Time limit) const {
  std::vector<Waiting> waiting;
  for (const auto& [name, pending] : pending_) {
    if (pending.since > limit) continue;
    Waiting& entry = waiting.emplace_back();
    entry.name = name;
    entry.description = DescribeTensor(pending.request);
    entry.since = pending.since;
    for (RankId rank = 0; rank < options_.world_size; ++rank) {
      (pending.ranks[rank] != Submitted::kNo ? entry.present : entry.missing).push_back(rank);
    }
  }
  if (leavers_ > 0 && leavers_ < options_.world_size && first_leave_ <= limit) {
    Waiting& entry = waiting.emplace_back();
    entry.description = "shutdown";
    entry.since = first_leave_;
    for (RankId rank = 0; rank < options_.world_size; ++rank) {
      (left_[rank] ? entry.present : entry.missing).push_back(rank);
    }
  }
  std::sort(waiting.begin(), waiting.end(),
            [](const Waiting& a, const Waiting& b) { return std::tie(a.since, a.name) < std::tie(b.since, b.name); });
  return waiting;
}

std::vector<std::string> Negotiator::SubmittedBy(RankId rank, size_t limit) const {
  std::vector<std::string> names;
  for (const auto& [name, pending] : pending_) {
    if (pending.ranks[rank] != Submitted::kNo) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  if (names.size() > limit) names.resize(limit);
  return names;
}

std::string Negotiator::Describe(RankId rank) const {
  if (identities_[rank].empty()) return absl::StrCat("rank ", rank);
  return absl::StrCat("rank ", rank, " (", identities_[rank], ")");
}

}  // namespace ronda
