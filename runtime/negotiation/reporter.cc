// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/reporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/operation.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Returns whether all ranks that the operation needs take part in the bucket.
bool HasItsRanks(const AgreedBucket& bucket, const TensorRequest& request) {
  const Group& participants = *bucket.participants;
  if (participants.size() == 0) return false;
  if (!bucket.joined.empty() && !TraitsOf(request.op).runs_without_joined) return false;
  if (request.op == OpType::kSendRecv) {
    return request.root != request.receiver && bucket.members->Contains(request.root) &&
           bucket.members->Contains(request.receiver);
  }
  return !TraitsOf(request.op).has_root() || participants.Contains(request.root);
}

}  // namespace

Reporter::Reporter(Options options)
    : options_(options), process_sets_(options.world_size), report_{.identity = options.identity} {}

void Reporter::Submit(const TensorRequest& request) {
  RecordProgram(RankReport::Program::kRuns);
  if (request.op == OpType::kJoin) joined_.insert(request.process_set);
  // After a join, requests are reported in full instead of by id. This keeps the order of the requests and the join in
  // the report, so that the coordinator sees which requests came too late.
  const std::optional<CacheId> id = joined_.contains(request.process_set) ? std::nullopt : Find(request);
  if (id) {
    report_.cached.push_back(*id);
    by_id_.emplace(request.key(), *id);
  } else {
    report_.requests.push_back(request);
  }
}

std::optional<CacheId> Reporter::Find(const TensorRequest& request) const {
  if (!cache_) return std::nullopt;
  const std::shared_ptr<const Group> members = process_sets_.Find(request.process_set);
  return members != nullptr ? cache_->Find(request, options_.rank, *members) : std::nullopt;
}

void Reporter::Drain() { report_.presence = presence_ = RankReport::Presence::kDraining; }

void Reporter::ShutDown() { report_.presence = presence_ = RankReport::Presence::kShuttingDown; }

// Drops the submissions that were not reported before a schedule began, because the schedule contains them, too. Keeps
// this rank's identity and presence.
void Reporter::ForgetReported() {
  report_ = {.presence = presence_, .identity = std::move(report_.identity)};
  by_id_.clear();
  joined_.clear();
  reported_.reset();
}

RankReport Reporter::TakeReport() {
  // The ids are sorted, so that they form few runs of consecutive numbers, whatever the order in which this rank's
  // tensors became ready. The order of the ids is the order in which the ranks first agreed on the tensors.
  std::sort(report_.cached.begin(), report_.cached.end());
  report_.schedule = schedule_;
  if (learned_of_ && learned_of_ == reported_) report_.waited = RankReport::Waited::kNo;
  reported_ = learned_of_;
  told_program_ = report_.program;
  has_program_news_ = false;
  return std::exchange(report_, {});
}

absl::StatusOr<Reporter::Work> Reporter::Apply(const ResponseList& list) {
  RecordProgram(RankReport::Program::kRuns);
  Work work;
  work.job = list.job;
  work.settings = list.settings;
  if (list.settings) RONDA_RETURN_IF_ERROR(ApplySettings(*list.settings));
  if (!cache_) return absl::InvalidArgumentError("the first response list does not begin with the job's settings");
  for (const ReceiveMatch& match : list.matches) {
    if (match.receiver == options_.rank) work.matches.push_back(match);
  }
  for (const TensorError& error : list.errors) {
    if (!std::binary_search(error.ranks.begin(), error.ranks.end(), options_.rank)) continue;
    Answered(error.key());
    work.errors.push_back(error);
  }
  for (const Bucket& bucket : list.buckets) {
    RONDA_ASSIGN_OR_RETURN(AgreedBucket resolved, CarryOut(bucket));
    work.buckets.push_back(std::move(resolved));
  }
  RONDA_ASSIGN_OR_RETURN(const auto evicted, cache_->Apply(list));
  RepeatEvicted(evicted);
  if (list.schedule) {
    RONDA_ASSIGN_OR_RETURN(work.schedule, Begin(*list.schedule));
  }
  return work;
}

absl::Status Reporter::ApplySettings(const JobSettings& settings) {
  if (!cache_) cache_.emplace(settings.cache_capacity);
  if (settings.cache_capacity == cache_->capacity()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a response cache of ", settings.cache_capacity, " entries instead of ", cache_->capacity()));
}

absl::StatusOr<ResolvedSchedule> Reporter::Begin(const Schedule& schedule) {
  if (schedule.number != schedule_ + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("schedule ", schedule.number, " begins where ", schedule_ + 1, " is the next"));
  }
  std::vector<AgreedBucket> buckets;
  for (const std::vector<CacheId>& ids : schedule.buckets) {
    RONDA_ASSIGN_OR_RETURN(AgreedBucket bucket, Resolve({.executions = {ids.begin(), ids.end()}}));
    if (bucket.process_set != kGlobalProcessSet || !CanBeScheduled(bucket.responses.front()->request)) {
      return absl::InvalidArgumentError(absl::StrCat("schedule ", schedule.number, " has tensor '",
                                                     bucket.responses.front()->request.name, "', which not all ranks ",
                                                     "carry out together"));
    }
    buckets.push_back(std::move(bucket));
  }
  schedule_ = schedule.number;
  ForgetReported();
  return ResolvedSchedule{.schedule = schedule, .buckets = std::move(buckets)};
}

void Reporter::Answered(TensorKeyView key) {
  by_id_.erase(key);
  if (key.name == kJoinName) joined_.erase(key.process_set);
}

absl::StatusOr<AgreedBucket> Reporter::CarryOut(const Bucket& bucket) {
  RONDA_ASSIGN_OR_RETURN(AgreedBucket resolved, Resolve(bucket));
  for (const std::shared_ptr<const Response>& response : resolved.responses) {
    RONDA_RETURN_IF_ERROR(process_sets_.Apply(*response));
    // If this rank takes no part in the tensor, it has not submitted it, and a tensor of the same name that it has
    // submitted is another one.
    if (resolved.participants->Contains(options_.rank)) Answered(response->request.key());
  }
  return resolved;
}

absl::StatusOr<AgreedBucket> Reporter::Resolve(const Bucket& bucket) const {
  AgreedBucket resolved;
  resolved.joined = bucket.joined;
  resolved.absent = bucket.absent;
  for (const Execution& execution : bucket.executions) {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const Response> response, Resolve(execution));
    resolved.responses.push_back(std::move(response));
  }
  if (resolved.responses.empty()) return absl::InvalidArgumentError("a response list with an empty bucket");
  RONDA_RETURN_IF_ERROR(FindParticipants(&resolved));
  for (const std::shared_ptr<const Response>& response : resolved.responses) {
    RONDA_RETURN_IF_ERROR(CheckBelongs(resolved, *response));
  }
  return resolved;
}

absl::StatusOr<std::shared_ptr<const Response>> Reporter::Resolve(const Execution& execution) const {
  if (const Response* response = std::get_if<Response>(&execution)) return std::make_shared<const Response>(*response);
  const CacheId id = std::get<CacheId>(execution);
  std::shared_ptr<const Response> cached = cache_->Get(id);
  if (cached == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("response list names id ", id, ", which is not cached"));
  }
  return cached;
}

absl::Status Reporter::FindParticipants(AgreedBucket* bucket) const {
  const TensorRequest& first = bucket->responses.front()->request;
  bucket->process_set = first.process_set;
  bucket->members = process_sets_.Find(first.process_set);
  if (bucket->members == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("response for tensor '", first.name, "' of process set ",
                                                   first.process_set, ", which does not exist"));
  }
  if (!std::includes(bucket->members->ranks().begin(), bucket->members->ranks().end(), bucket->joined.begin(),
                     bucket->joined.end())) {
    return absl::InvalidArgumentError(absl::StrCat("response for tensor '", first.name, "' without ranks that are not ",
                                                   "in process set ", first.process_set));
  }
  bucket->participants = ParticipantsOf(first, bucket->members);
  if (bucket->participants == bucket->members && !bucket->joined.empty()) {
    bucket->participants = std::make_shared<const Group>(bucket->members->Without(bucket->joined));
  }
  return absl::OkStatus();
}

// Checks the properties on which the executor relies.
absl::Status Reporter::CheckBelongs(const AgreedBucket& bucket, const Response& response) const {
  const TensorRequest& request = response.request;
  const Group& members = *bucket.members;
  const bool gathers = TraitsOf(request.op).first_dimension == FirstDimension::kGathered;
  if (response.first_dims.size() != (gathers ? static_cast<size_t>(members.size()) : 0)) {
    return absl::InvalidArgumentError(absl::StrCat("response for tensor '", request.name, "' has ",
                                                   response.first_dims.size(), " first dimensions for ", members.size(),
                                                   " ranks"));
  }
  const TensorRequest& first = bucket.responses.front()->request;
  // An operation that has participants of its own, such as a send/recv, must be alone in its bucket.
  const bool is_single = request.op == OpType::kSendRecv || TraitsOf(request.op).by_new_members;
  const bool fits = request.process_set == first.process_set && request.op == first.op &&
                    (!is_single || bucket.responses.size() == 1);
  if (!fits || !HasItsRanks(bucket, request)) {
    return absl::InvalidArgumentError(
        absl::StrCat("response for tensor '", request.name, "' does not fit its process set or its bucket"));
  }
  return absl::OkStatus();
}

void Reporter::RepeatEvicted(const std::vector<ResponseCache::Evicted>& evicted) {
  std::vector<TensorRequest> unsent;
  for (const ResponseCache::Evicted& entry : evicted) {
    const TensorRequest& agreed = entry.response->request;
    const auto it = by_id_.find(agreed.key());
    if (it == by_id_.end() || it->second != entry.id) continue;
    by_id_.erase(it);
    // If the process set has been removed, the request will be answered with an error, so its number of rows does not
    // matter.
    const std::shared_ptr<const Group> members = process_sets_.Find(agreed.process_set);
    TensorRequest request = members ? RequestOf(*entry.response, options_.rank, *members) : agreed;
    if (std::erase(report_.cached, entry.id) > 0) {
      unsent.push_back(std::move(request));
    } else {
      // The coordinator has accepted the id in the report, or will ignore it. This rank cannot know which, so it
      // repeats the request.
      report_.repeated.push_back({entry.id, std::move(request)});
    }
  }
  // In the report, the requests in `unsent` come before any join, because the program submitted them before the join.
  report_.requests.insert(report_.requests.begin(), std::make_move_iterator(unsent.begin()),
                          std::make_move_iterator(unsent.end()));
}

}  // namespace ronda
