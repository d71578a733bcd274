// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/negotiator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::Status SetIsGone(ProcessSetId set) {
  return absl::FailedPreconditionError(absl::StrCat("process set ", set, " was removed"));
}

// Returns the error for all tensors in the group of `culprit`.
absl::Status BecauseOf(const TensorRequest& culprit, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat("no tensor of group '", culprit.group, "' is carried out, because of tensor '",
                                   culprit.name, "': ", status.message()));
}

}  // namespace

Negotiator::Negotiator(Options options)
    : options_(options),
      sizes_{.threshold = options.fusion.threshold, .min_bucket_bytes = options.schedule.min_bucket_bytes},
      cache_(options.cache_capacity),
      process_sets_(options.world_size),
      ranks_(options.world_size),
      inboxes_(options.world_size),
      steps_({.identical_steps = options.schedule.identical_steps, .planning = PlanningOfSteps()}) {}

absl::Status Negotiator::Add(RankId rank, const RankReport& report, absl::Time now, const ReadyCallback* on_ready) {
  if (!ranks_.Has(rank)) return absl::InvalidArgumentError(absl::StrCat("a report of rank ", rank));
  if (ranks_.HasShutDown(rank)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(rank), " reports after it has shut down"));
  }
  now_ = now;
  submitted_ = now - report.age;
  on_ready_ = on_ready;
  if (!anything_waits()) own_limits_ = WaitingView::OwnLimits::kNone;
  if (!report.identity.empty()) ranks_.Introduce(rank, report.identity);
  RONDA_ASSIGN_OR_RETURN(const Freshness freshness, CheckSchedule(rank, report));
  if (freshness == Freshness::kStale) return absl::OkStatus();
  if (report.waited == RankReport::Waited::kPerhaps) steps_.Wait();
  if (report.last_schedule == RankReport::LastSchedule::kDidNotFit) steps_.Distrust();
  for (CacheId id : report.cached) RONDA_RETURN_IF_ERROR(SubmitById(rank, id));
  for (const RepeatedRequest& repeated : report.repeated) RONDA_RETURN_IF_ERROR(Repeat(rank, repeated));
  for (const TensorRequest& request : report.requests) {
    const bool joins = request.op == OpType::kJoin;
    RONDA_RETURN_IF_ERROR(joins ? SubmitJoin(rank, request) : Submit(rank, request, Time::kNow));
  }
  if (!receives_.empty()) MatchReceives();
  // Groups must not fail before this point, because only now has the rank reported all tensors of its groups.
  for (const auto& [group, status] : std::exchange(failed_groups_, {})) FailGroup(group, status);
  ReleaseGroups();
  if (report.presence == RankReport::Presence::kDraining) ranks_.Drain(rank);
  if (report.presence == RankReport::Presence::kShuttingDown) ranks_.ShutDown(rank, now_);
  if (report.presence != RankReport::Presence::kPresent) FailWithout(rank);
  return absl::OkStatus();
}

// When a large job repeats its steps, the coordinator spends most of its time here. So SubmitById makes only one lookup
// by number, and sets one bit.
absl::Status Negotiator::SubmitById(RankId rank, CacheId id) {
  PendingTensor* tensor = pending_.FindById(id);
  if (tensor == nullptr) return StartById(rank, id);
  if (!joins_.empty() && HasJoined(rank, tensor->request().process_set)) {
    Refuse(rank, tensor->request().key(), HasJoinedError(rank, tensor->request()));
    return absl::OkStatus();
  }
  return Arrive(rank, tensor);
}

absl::Status Negotiator::StartById(RankId rank, CacheId id) {
  std::shared_ptr<const Response> response = cache_.Get(id);
  if (response == nullptr) {
    // The id was evicted before the report arrived, so the submission is ignored, and the rank will repeat it in full.
    inboxes_[rank].ignored.insert(id);
    return absl::OkStatus();
  }
  const TensorRequest& request = response->request;
  const std::shared_ptr<const Group> members = process_sets_.Find(request.process_set);
  const bool startable = members != nullptr && members->Contains(rank) && !HasJoined(rank, request.process_set) &&
                         pending_.Find(request.key()) == nullptr;
  if (startable) return Arrive(rank, Start(rank, pending_.Start(id, std::move(response))));
  if (members == nullptr || !members->Contains(rank)) return Submit(rank, request, Time::kNow);
  return Submit(rank, RequestOf(*response, rank, *members), Time::kNow);
}

absl::Status Negotiator::Repeat(RankId rank, const RepeatedRequest& repeated) {
  Inbox& inbox = inboxes_[rank];
  if (inbox.ignored.erase(repeated.id) == 0) return absl::OkStatus();  // the id was reported in time
  RONDA_RETURN_IF_ERROR(Submit(rank, repeated.request, Time::kBeforeJoining));
  if (!inbox.ignored.empty()) return absl::OkStatus();
  for (const TensorRequest& join : std::exchange(inbox.delayed_joins, {})) {
    if (process_sets_.Find(join.process_set) == nullptr) {
      Refuse(rank, join.key(), SetIsGone(join.process_set));
    } else {
      Join(rank, join);
    }
  }
  return absl::OkStatus();
}

absl::Status Negotiator::HasJoinedError(RankId rank, const TensorRequest& request) const {
  return absl::FailedPreconditionError(absl::StrCat(Describe(rank), " has joined process set ", request.process_set,
                                                    " and cannot submit ", NameForErrors(request),
                                                    " before all have joined"));
}

bool Negotiator::HasJoined(RankId rank, ProcessSetId set) const {
  if (joins_.Contains(set, rank)) return true;
  const std::vector<TensorRequest>& delayed = inboxes_[rank].delayed_joins;
  return std::any_of(delayed.begin(), delayed.end(),
                     [&](const TensorRequest& join) { return join.process_set == set; });
}

void Negotiator::Refuse(RankId rank, TensorKeyView tensor, absl::Status status) {
  errors_.push_back({std::string(tensor.name), tensor.process_set, std::move(status), {rank}});
}

absl::Status Negotiator::Submit(RankId rank, const TensorRequest& request, Time time) {
  const std::shared_ptr<const Group> members = process_sets_.Find(request.process_set);
  if (members == nullptr) {
    if (!process_sets_.Known(request.process_set)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(rank), " submits ", NameForErrors(request), ", and there is no such process set"));
    }
    Refuse(rank, request.key(), SetIsGone(request.process_set));
    return absl::OkStatus();
  }
  RONDA_RETURN_IF_ERROR(CheckRequest(rank, request, process_sets_, ranks_));
  if (time == Time::kNow && HasJoined(rank, request.process_set)) {
    Refuse(rank, request.key(), HasJoinedError(rank, request));
    return absl::OkStatus();
  }
  PendingTensor* tensor = pending_.Find(request.key());
  if (tensor == nullptr) {
    tensor = Start(rank, pending_.Start(request));
  } else {
    pending_.SpellOut(tensor);
  }
  Merge(rank, request, tensor);
  if (IsOrderedReceive(request)) {
    const TensorKey key(request.key());
    std::erase(receives_, key);  // an earlier one of this name has failed
    receives_.push_back(key);
  }
  return Arrive(rank, tensor);
}

PendingTensor* Negotiator::Start(RankId rank, PendingTensor* tensor) {
  const TensorRequest& request = tensor->request();
  tensor->participants = ParticipantsOf(request, process_sets_.Find(request.process_set));
  tensor->submitted.Reset(tensor->participants->size());
  tensor->missing = tensor->participants->size();
  tensor->first_rank = rank;
  tensor->since = submitted_;
  if (request.limits) own_limits_ = WaitingView::OwnLimits::kPossible;
  if (TraitsOf(request.op).first_dimension == FirstDimension::kGathered && !tensor->cached) {
    tensor->first_dims.assign(tensor->participants->size(), 0);
  }
  const SetJoins* joins = joins_.Find(request.process_set);
  if (joins == nullptr) return tensor;
  for (RankId joined : joins->ranks()) tensor->missing -= tensor->participants->Contains(joined) ? 1 : 0;
  return tensor;
}

void Negotiator::MatchReceives() {
  std::erase_if(receives_, [this](const TensorKey& key) {
    PendingTensor* receive = pending_.Find(key);
    return receive == nullptr || MatchReceive(receive);
  });
}

// Finds a message for the receive, and turns the receive into the receiver's submission of this message.
bool Negotiator::MatchReceive(PendingTensor* receive) {
  // If an id of the sender or of the receiver was ignored, an earlier request of this rank may still come.
  const auto is_told = [this](RankId rank) { return inboxes_[rank].ignored.empty(); };
  if (!is_told(receive->request().receiver)) return false;
  PendingTensor* const message = OldestMessageFor(receive->request(), pending_, is_told);
  if (message == nullptr) return false;
  const std::unique_ptr<PendingTensor> matched = pending_.Extract(receive);
  TensorRequest request = matched->request();
  request.name = message->request().name;
  request.root = message->request().root;
  matches_.push_back({.process_set = request.process_set,
                      .receiver = request.receiver,
                      .receive = matched->request().name,
                      .message = request.name,
                      .sender = request.root});
  if (message->request() != request) {
    pending_.SpellOut(message);
    Merge(request.receiver, request, message);
  }
  const absl::Status arrived = Arrive(request.receiver, message);
  RONDA_CHECK(arrived.ok());
  return true;
}

// Merges a submission that was reported in full, and records how it differs from the first submission of this tensor.
void Negotiator::Merge(RankId rank, const TensorRequest& request, PendingTensor* tensor) {
  TensorRequest& first = tensor->spelled;
  if (request.limits != first.limits) {
    const WaitLimits a = LimitsOf(request), b = LimitsOf(first);
    first.limits = {.warning = std::min(a.warning, b.warning), .deadline = std::min(a.deadline, b.deadline)};
    own_limits_ = WaitingView::OwnLimits::kPossible;
  }
  if (!request.refusal.empty()) {
    MergeRefusal(rank, request, tensor);
  } else if (!first.refusal.empty() || (rank == tensor->first_rank && tensor->submitted.count() == 0)) {
    // There is nothing to compare: either this is the first submission, or the first one was a refusal, which does not
    // describe the tensor.
  } else {
    MergeDifference(rank, request, tensor);
  }
  if (request.op != first.op || request.shape.empty()) return;
  const FirstDimension meaning = TraitsOf(request.op).first_dimension;
  const std::optional<int> position = tensor->participants->PositionOf(rank);
  if (meaning == FirstDimension::kGathered && position) tensor->first_dims[*position] = request.shape.front();
  if (meaning == FirstDimension::kOfRoot && rank == request.root && !first.shape.empty()) {
    first.shape.front() = request.shape.front();
  }
}

void Negotiator::MergeDifference(RankId rank, const TensorRequest& request, PendingTensor* tensor) const {
  const TensorRequest& first = tensor->spelled;
  std::vector<std::string>& others = tensor->other_groups;
  const bool is_known = std::find(others.begin(), others.end(), request.group) != others.end();
  if (request.group != first.group && !is_known) others.push_back(request.group);
  if (!tensor->mismatch.empty()) return;
  const RankId other = tensor->first_rank;
  const auto mismatch = other < rank ? DescribeMismatch(first, Describe(other), request, Describe(rank))
                                     : DescribeMismatch(request, Describe(rank), first, Describe(other));
  tensor->mismatch = mismatch.value_or("");
}

// If several ranks refuse the tensor, the error has the text of the lowest of them, whatever the order of their
// reports.
void Negotiator::MergeRefusal(RankId rank, const TensorRequest& request, PendingTensor* tensor) const {
  if (!tensor->refusal.empty() && tensor->refused_by < rank) return;
  tensor->refusal = absl::StrCat(Describe(rank), " has refused to take part: ", request.refusal);
  tensor->refused_by = rank;
}

absl::Status Negotiator::Arrive(RankId rank, PendingTensor* tensor) {
  const std::optional<int> position = tensor->participants->PositionOf(rank);
  if (!position) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(rank), " submits ", DescribeTensor(tensor->request()), ", which is not for it"));
  }
  if (!tensor->submitted.Insert(*position)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(rank), " reports ", NameForErrors(tensor->request()), " twice"));
  }
  tensor->since = std::min(tensor->since, submitted_);
  if (on_ready_ != nullptr) (*on_ready_)(rank, tensor->request());
  if (--tensor->missing == 0) {
    Conclude(tensor);
  } else if (!ranks_.departures().empty()) {
    FailForDeparture(tensor);
  }
  return absl::OkStatus();
}

absl::Status Negotiator::SubmitJoin(RankId rank, const TensorRequest& request) {
  const std::shared_ptr<const Group> members = process_sets_.Find(request.process_set);
  if (members == nullptr) return Submit(rank, request, Time::kNow);  // fails
  RONDA_RETURN_IF_ERROR(CheckRequest(rank, request, process_sets_, ranks_));
  if (HasJoined(rank, request.process_set)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(rank), " reports ", NameForErrors(request), " twice"));
  }
  if (inboxes_[rank].ignored.empty()) {
    Join(rank, request);
  } else {
    // The join is delayed, because the rank will first repeat requests that it made before the join.
    inboxes_[rank].delayed_joins.push_back(request);
  }
  return absl::OkStatus();
}

void Negotiator::Join(RankId rank, const TensorRequest& request) {
  const ProcessSetId set = request.process_set;
  SetJoins* joins = joins_.Add(rank, request, process_sets_.Find(set), now_);
  if (request.limits) own_limits_ = WaitingView::OwnLimits::kPossible;
  if (joins->mismatch.empty() && rank != joins->first) {
    joins->mismatch = DescribeMismatch(joins->request, Describe(joins->first), request, Describe(rank)).value_or("");
  }
  const auto lacks_it = [&](const PendingTensor& tensor) {
    if (tensor.request().process_set != set) return false;
    const std::optional<int> position = tensor.participants->PositionOf(rank);
    return position && !tensor.submitted.Contains(*position);
  };
  for (PendingTensor* tensor : pending_.Select(lacks_it)) {
    // Conclude removes no other pending tensor here. Only a change of process sets would do so, and such a change does
    // not run without a rank that has joined.
    if (--tensor->missing == 0) Conclude(tensor);
  }
  if (joins->complete()) {
    ReleaseGroups();  // while the ranks that joined are still absent
    ConcludeJoins(set);
  } else {
    FailJoinsForDeparture(set);
  }
}

void Negotiator::ConcludeJoins(ProcessSetId set) {
  const SetJoins& joins = *joins_.Find(set);
  if (!joins.mismatch.empty()) {
    FailJoins(set, absl::FailedPreconditionError(absl::StrCat("ranks disagree: ", joins.mismatch)));
    return;
  }
  auto response = std::make_shared<Response>();
  response->request = joins.request;
  response->request.root = joins.last;
  agreed_.push_back({.response = std::move(response)});
  steps_.Break();
  joins_.Erase(set);
}

void Negotiator::FailJoins(ProcessSetId set, const absl::Status& status) {
  const SetJoins* joins = joins_.Find(set);
  const std::vector<RankId> ranks = joins->ranks();
  errors_.push_back({std::string(kJoinName), set, status, ranks});
  joins_.Erase(set);
  const auto in_set = [&](const PendingTensor& tensor) { return tensor.request().process_set == set; };
  for (PendingTensor* tensor : pending_.Select(in_set)) {
    tensor->missing = tensor->participants->size() - tensor->submitted.count();
  }
}

void Negotiator::FailJoinsForDeparture(ProcessSetId set) {
  const SetJoins* joins = joins_.Find(set);
  for (RankId departed : ranks_.departures()) {
    if (!joins->members->Contains(departed) || joins->Contains(departed)) continue;
    FailJoins(set, DepartureError(departed, joins->request));
    return;
  }
}

absl::Status Negotiator::DepartureError(RankId rank, const TensorRequest& request) const {
  return absl::UnavailableError(
      absl::StrCat(Describe(rank), " has shut down and will not submit ", DescribeTensor(request)));
}

void Negotiator::FailWithout(RankId rank) {
  const auto lacks_it = [&](const PendingTensor& tensor) {
    const std::optional<int> position = tensor.participants->PositionOf(rank);
    return position && !tensor.submitted.Contains(*position);
  };
  std::vector<TensorKey> lacking;
  for (const PendingTensor* tensor : pending_.Select(lacks_it)) lacking.emplace_back(tensor->request().key());
  for (const TensorKey& key : lacking) {
    // The tensor may no longer be pending: it may have failed together with another tensor of its group.
    if (PendingTensor* tensor = pending_.Find(key)) FailForDeparture(tensor);
  }
  for (ProcessSetId set : joins_.sets()) FailJoinsForDeparture(set);
}

void Negotiator::FailForDeparture(PendingTensor* tensor) {
  if (IsFromAnyRank(tensor->request())) {
    const std::vector<RankId>& ranks = tensor->participants->ranks();
    const auto may_send = [&](RankId rank) { return rank != tensor->request().receiver && !ranks_.HasShutDown(rank); };
    if (std::any_of(ranks.begin(), ranks.end(), may_send)) return;
  }
  for (RankId departed : ranks_.departures()) {
    const std::optional<int> position = tensor->participants->PositionOf(departed);
    if (!position || tensor->submitted.Contains(*position)) continue;
    // The tensor does not wait for this rank, which has joined.
    if (HasJoined(departed, tensor->request().process_set)) continue;
    // The receive may still get a message that the rank has already sent.
    if (IsOrderedReceive(tensor->request()) && !ranks_.HasShutDown(departed)) continue;
    const TensorKey key(tensor->request().key());
    Fail(key, DepartureError(departed, tensor->request()));
    return;
  }
}

void Negotiator::Fail(TensorKeyView tensor, const absl::Status& status) {
  PendingTensor* pending = pending_.Find(tensor);
  const HeldGroup* held = pending == nullptr && !groups_.empty() ? groups_.FindByTensor(tensor) : nullptr;
  if (pending != nullptr && pending->request().group.empty()) {
    Answer(pending_.Extract(pending), status);
  } else if (pending != nullptr || held != nullptr) {
    const PendingTensor& culprit = pending != nullptr ? *pending : *held->tensors.front().tensor;
    const TensorKey group(GroupOf(culprit.request()));
    FailGroup(group, BecauseOf(culprit.request(), status));
  } else if (tensor.name == kJoinName && joins_.Find(tensor.process_set) != nullptr) {
    FailJoins(tensor.process_set, status);
  }
}

void Negotiator::Conclude(PendingTensor* tensor) {
  if (SetJoins* joins = joins_.Find(tensor->request().process_set)) joins->since = now_;
  ConcludedTensor concluded;
  concluded.joined = JoinedWithout(*tensor);
  if (!concluded.joined.empty()) concluded.absent = joins_.Find(tensor->request().process_set)->request.absent;
  concluded.verdict = Verdict(*tensor, concluded.joined);
  concluded.tensor = pending_.Extract(tensor);
  if (!concluded.tensor->other_groups.empty()) {
    FailGroupsOf(*concluded.tensor, concluded.verdict);
    Answer(std::move(concluded.tensor), concluded.verdict);
  } else if (!concluded.tensor->refusal.empty()) {
    // A refused tensor is answered immediately, and not held with its group, because a refusal names no group. A rank
    // that refuses a group refuses each of its tensors.
    Answer(std::move(concluded.tensor), concluded.verdict);
  } else if (!concluded.tensor->request().group.empty()) {
    groups_.Hold(std::move(concluded), now_);
  } else if (concluded.verdict.ok()) {
    Release(std::move(concluded));
  } else {
    Answer(std::move(concluded.tensor), concluded.verdict);
  }
}

void Negotiator::FailGroupsOf(const PendingTensor& tensor, const absl::Status& verdict) {
  TensorRequest culprit = {.name = tensor.request().name, .process_set = tensor.request().process_set};
  std::vector<std::string> groups = tensor.other_groups;
  groups.push_back(tensor.request().group);
  for (const std::string& group : groups) {
    if (group.empty()) continue;
    culprit.group = group;
    failed_groups_.emplace_back(TensorKey(GroupOf(culprit)), BecauseOf(culprit, verdict));
  }
}

std::vector<RankId> Negotiator::JoinedWithout(const PendingTensor& tensor) const {
  const SetJoins* joins = joins_.Find(tensor.request().process_set);
  std::vector<RankId> joined;
  if (joins == nullptr) return joined;
  for (RankId rank : joins->ranks()) {
    const std::optional<int> position = tensor.participants->PositionOf(rank);
    if (position && !tensor.submitted.Contains(*position)) joined.push_back(rank);
  }
  return joined;
}

absl::Status Negotiator::Verdict(const PendingTensor& tensor, const std::vector<RankId>& joined) const {
  if (!tensor.refusal.empty()) return absl::FailedPreconditionError(tensor.refusal);
  if (!tensor.mismatch.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("ranks disagree: ", tensor.mismatch, "; submit the same on every rank"));
  }
  return CheckFeasible(tensor.request(), joined, process_sets_, ranks_);
}

void Negotiator::Release(ConcludedTensor concluded) {
  PendingTensor& tensor = *concluded.tensor;
  Agreed agreed = {.joined = std::move(concluded.joined), .absent = concluded.absent};
  if (tensor.CachedResponseHolds(agreed.joined)) {
    agreed.cached_as = tensor.cached_as;
    agreed.response = tensor.cached;
  } else {
    const std::shared_ptr<Response> response = tensor.TakeResponse(agreed.joined);
    ChangeProcessSets(&response->request);
    agreed.response = response;
  }
  Watch(agreed);
  agreed_.push_back(std::move(agreed));
  pending_.Recycle(std::move(concluded.tensor));
}

void Negotiator::ChangeProcessSets(TensorRequest* request) {
  if (!TraitsOf(request->op).changes_process_sets) return;
  const ProcessSetId removed = request->subject;
  if (TraitsOf(request->op).adds_process_set) request->subject = process_sets_.next_id();
  const absl::Status changed = process_sets_.Apply({*request, {}});
  RONDA_CHECK(changed.ok());
  if (request->op == OpType::kRemoveProcessSet) FailAllOf(removed);
}

void Negotiator::FailAllOf(ProcessSetId set) {
  const absl::Status status = SetIsGone(set);
  for (HeldGroup& group : groups_.TakeAllOf(set)) AnswerAll(std::move(group), status);
  const auto in_set = [&](const PendingTensor& tensor) { return tensor.request().process_set == set; };
  for (PendingTensor* tensor : pending_.Select(in_set)) Answer(pending_.Extract(tensor), status);
  if (joins_.Find(set) != nullptr) FailJoins(set, status);
}

void Negotiator::ReleaseGroups() {
  if (groups_.empty()) return;
  for (HeldGroup& group : groups_.TakeComplete()) {
    const absl::Status verdict = group.Verdict();
    if (!verdict.ok()) {
      const TensorKey key(GroupOf(group.tensors.front().tensor->request()));
      AnswerAll(std::move(group), verdict);
      FailGroup(key, verdict);
      continue;
    }
    for (ConcludedTensor& concluded : group.tensors) Release(std::move(concluded));
  }
}

// Fails the tensors of the group that are held, or that still wait for ranks.
void Negotiator::FailGroup(TensorKeyView group, const absl::Status& status) {
  for (HeldGroup& held : groups_.Take(group)) AnswerAll(std::move(held), status);
  const auto in_group = [&](const PendingTensor& tensor) {
    return !tensor.request().group.empty() && GroupOf(tensor.request()) == group;
  };
  for (PendingTensor* tensor : pending_.Select(in_group)) Answer(pending_.Extract(tensor), status);
}

void Negotiator::AnswerAll(HeldGroup group, const absl::Status& status) {
  for (ConcludedTensor& concluded : group.tensors) Answer(std::move(concluded.tensor), status);
}

void Negotiator::Answer(std::unique_ptr<PendingTensor> tensor, const absl::Status& status) {
  TensorError& error = errors_.emplace_back();
  error.name = tensor->request().name;
  error.process_set = tensor->request().process_set;
  error.status = status;
  const Group& participants = *tensor->participants;
  for (int position = 0; position < participants.size(); ++position) {
    if (tensor->submitted.Contains(position)) error.ranks.push_back(participants[position]);
  }
  pending_.Recycle(std::move(tensor));
}

ResponseList Negotiator::TakeResponses() {
  ResponseList list;
  if (!errors_.empty()) steps_.Break();
  list.matches = std::exchange(matches_, {});
  list.errors = std::exchange(errors_, {});
  list.buckets = FusionPlanner({.threshold = sizes_.threshold}).Plan(std::exchange(agreed_, {}));
  const auto evicted = cache_.Apply(list);
  RONDA_CHECK(evicted.ok());
  for (const ResponseCache::Evicted& entry : *evicted) {
    if (PendingTensor* tensor = pending_.FindById(entry.id)) pending_.SpellOut(tensor);
    groups_.SpellOut(entry.id);
    steps_.Forget(entry.id);
  }
  if (ranks_.all_departed()) list.job = ResponseList::Job::kEnds;
  list.schedule = BeginSchedule();
  return list;
}

}  // namespace ronda
