// SPDX-License-Identifier: Apache-2.0

#include "client/session.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/per_thread.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/types.h"

namespace ronda {

uint64_t NumberSequence::Next() {
  Settle();
  // Reserves memory now, so that Record() need not allocate any.
  if (in_flight_.size() == in_flight_.capacity()) in_flight_.reserve(2 * in_flight_.size() + 1);
  return again_.empty() ? next_ : *again_.begin();
}

void NumberSequence::Record(std::shared_ptr<const Handle> operation) {
  const uint64_t number = again_.empty() ? next_ : *again_.begin();
  if (again_.erase(number) == 0) ++next_;
  const auto is_before = [](const InFlight& a, uint64_t b) { return a.number < b; };
  const auto place = std::lower_bound(in_flight_.begin(), in_flight_.end(), number, is_before);
  in_flight_.insert(place, {number, std::move(operation)});
}

void NumberSequence::Settle() {
  const auto last = in_flight_.begin() + static_cast<ptrdiff_t>(std::min(in_flight_.size(), kLookedAt));
  // Checks each operation only once. An operation that completed between two checks would be erased without Settle().
  const auto settle_if_ended = [this](const InFlight& one) {
    if (!one.operation->done()) return false;
    Settle(one);
    return true;
  };
  in_flight_.erase(std::remove_if(in_flight_.begin(), last, settle_if_ended), last);
}

void NumberSequence::Settle(const InFlight& ended) {
  const absl::Status status = ended.operation->Wait();
  if (absl::IsDeadlineExceeded(status)) again_.insert(ended.number);
  if (absl::IsFailedPrecondition(status)) disagreement_ = std::max(ended.number, disagreement_.value_or(0));
}

namespace {

// Creates the error for operations that the caller has not named. It replaces the runtime's error, whose text contains
// the operation's internal name.
absl::Status TooMany(OpType op, RankId sender, RankId receiver) {
  const bool is_message = op == OpType::kSendRecv;
  return absl::AlreadyExistsError(absl::StrCat(
      Name(op), ": ", Session::kConcurrentOfAKind, " are in flight already ",
      is_message ? absl::StrCat("from rank ", sender, " to rank ", receiver, " with this tag") : "in this process set",
      ": wait for the first of them", is_message ? ", or use more tags" : ""));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Handle>> Session::Submit(Submission* submission) {
  if (submission->request.op == OpType::kSendRecv) return SubmitMessage(submission);
  if (!submission->request.name.empty()) return runtime_.Submit(*submission);
  const bool is_on_device = submission->request.memory != Memory::kHost;
  const std::shared_ptr<CallerLane> lane =
      is_on_device ? runtime_.lanes().Find(submission->request.process_set) : nullptr;
  return lane == nullptr ? SubmitUnnamed(submission) : SubmitInLane(*lane, submission);
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitInLane(CallerLane& lane, Submission* submission) {
  RONDA_ASSIGN_OR_RETURN(const bool is_carried, lane.Carries(*submission));
  if (is_carried) return lane.Submit(submission);
  RONDA_RETURN_IF_ERROR(lane.OrderBefore(submission->stream));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, SubmitUnnamed(submission));
  lane.Follow(handle);
  return handle;
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitUnnamed(Submission* submission) {
  TensorRequest& request = submission->request;
  MutexLock lock(&mu_);
  SettleJoinLocked(request.process_set);
  UnnamedCalls& calls = unnamed_[request.process_set];
  const uint64_t number = calls.numbers.Next();
  if (const auto disagreement = calls.numbers.TakeDisagreement()) calls.order.RestartAfter(*disagreement);
  if (number - std::min(number, calls.numbers.oldest()) >= CallOrder::kRemembered - 1) {
    return absl::AlreadyExistsError(absl::StrCat(Name(request.op), ": ", CallOrder::kRemembered - 1,
                                                 " tensors without a name are in flight already in this process set: "
                                                 "wait for the first of them, or give tensors names"));
  }
  const bool again = number < calls.order.count();
  absl::StrAppend(&request.name, kUnnamedPrefix, again ? calls.order.NameOf(number) : calls.order.NextName());
  submission->unnamed_call = number + 1;
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime_.Submit(*submission));
  if (!again) calls.order.Add(SignatureOf(request));
  // A refusal means that the ranks differ in this call. The other ranks learn of the difference when the operation has
  // failed; this rank already knows.
  if (!request.refusal.empty()) calls.order.RestartAfter(number);
  calls.numbers.Record(handle);
  return handle;
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitMessage(Submission* submission) {
  TensorRequest& request = submission->request;
  MutexLock lock(&mu_);
  SettleJoinLocked(request.process_set);
  const bool receives = request.receiver == topology().rank;
  if (!receives || (receives_.empty() && !IsFromAnyRank(request))) return SubmitNumberedLocked(*submission);
  const absl::string_view name = request.name;
  const std::string in_order = ReceiveName(request.receiver, name.substr(name.rfind('/') + 1));
  if (!IsInOrderLocked(request, in_order)) return SubmitNumberedLocked(*submission);
  request.name = in_order;
  std::vector<std::shared_ptr<const Handle>>& waiting = receives_[{request.process_set, in_order}];
  waiting.reserve(waiting.size() + 1);  // a receive in flight cannot be taken back
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, SubmitNumberedLocked(*submission));
  waiting.push_back(handle);
  return handle;
}

bool Session::IsInOrderLocked(const TensorRequest& request, const std::string& name) {
  const auto found = receives_.find({request.process_set, name});
  if (found == receives_.end()) return IsFromAnyRank(request);
  const absl::string_view tag = absl::string_view(name).substr(name.rfind('/') + 1);
  std::vector<std::shared_ptr<const Handle>> in_flight;
  for (std::shared_ptr<const Handle>& receive : found->second) {
    if (!receive->done()) {
      in_flight.push_back(std::move(receive));
    } else if (const std::optional<RankId> sender = receive->sender()) {
      NumberSequence& sequence = sequences_[{request.process_set, ChannelName(*sender, request.receiver, tag)}];
      sequence.Next();
      sequence.Record(std::move(receive));
    }
  }
  found->second = std::move(in_flight);
  if (!found->second.empty()) return true;
  receives_.erase(found);
  return IsFromAnyRank(request);
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitNumbered(Submission submission) {
  MutexLock lock(&mu_);
  SettleJoinLocked(submission.request.process_set);
  return SubmitNumberedLocked(std::move(submission));
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitNumberedLocked(Submission submission) {
  std::string& name = submission.request.name;
  NumberSequence& sequence = sequences_[{submission.request.process_set, name}];
  // Cycles through a few names, so that they stay in the response cache. A new name for each operation would flush the
  // cache.
  absl::StrAppend(&name, "/", sequence.Next() % kConcurrentOfAKind);
  const OpType op = submission.request.op;
  const RankId sender = submission.request.root, receiver = submission.request.receiver;
  absl::StatusOr<std::shared_ptr<Handle>> handle = runtime_.Submit(submission);
  if (absl::IsAlreadyExists(handle.status())) return TooMany(op, sender, receiver);
  if (handle.ok()) sequence.Record(*handle);
  return handle;
}

void Session::ForgetRemovedSets() {
  const auto is_gone = [this](ProcessSetId set) { return !runtime_.ProcessSet(set).ok(); };
  MutexLock lock(&mu_);
  std::erase_if(sequences_, [&](const auto& sequence) { return is_gone(sequence.first.first); });
  std::erase_if(receives_, [&](const auto& receives) { return is_gone(receives.first.first); });
  std::erase_if(unnamed_, [&](const auto& calls) { return is_gone(calls.first); });
  std::erase_if(joins_, [&](const auto& join) { return is_gone(join.first); });
}

absl::StatusOr<std::shared_ptr<Handle>> Session::SubmitJoin(const Submission& submission) {
  const ProcessSetId set = submission.request.process_set;
  MutexLock lock(&mu_);
  SettleJoinLocked(set);
  // Creates the map entry before the submission, because a join in flight could not be cancelled if memory were
  // exhausted.
  std::shared_ptr<const Handle>& join = joins_[set];
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, runtime_.Submit(submission));
  join = handle;
  return handle;
}

absl::StatusOr<uint64_t> Session::CountJoins() {
  MutexLock lock(&mu_);
  SettleJoinLocked(kGlobalProcessSet);
  const auto join = joins_.find(kGlobalProcessSet);
  if (join != joins_.end() && join->second != nullptr) {
    return absl::InvalidArgumentError(
        "this rank has joined, and takes no part until all have: wait for its join first");
  }
  return joins_of_all_;
}

void Session::SettleJoinLocked(ProcessSetId set) {
  const auto join = joins_.find(set);
  if (join == joins_.end() || join->second == nullptr || !join->second->done()) return;
  const absl::Status status = join->second->Wait();
  // FAILED_PRECONDITION means that all ranks have joined, but disagree on the arguments of the join. Other errors occur
  // before all ranks have joined, and not on all ranks.
  if (status.ok() || absl::IsFailedPrecondition(status)) {
    if (set == kGlobalProcessSet) ++joins_of_all_;
    std::erase_if(sequences_, [set](const auto& sequence) { return sequence.first.first == set; });
    std::erase_if(receives_, [set](const auto& receives) { return receives.first.first == set; });
    unnamed_.erase(set);
  }
  joins_.erase(join);
}

namespace {

using CurrentRole = PerThread<RankContexts::Role>;

// The pointer is null in a thread that acts for no rank, so such a thread needs no memory for a Role.
RankContexts::Role ExchangeRole(RankContexts::Role role) {
  if (role.id == 0 && CurrentRole::IfMade() == nullptr) return {};
  return std::exchange(CurrentRole::Get(), std::move(role));
}

}  // namespace

RankContexts::Scope::Scope(RankContexts* contexts, Runtime& runtime, WaitLimits limits) : contexts_(contexts) {
  session_ = std::shared_ptr<Session>(new Session(runtime, limits), [this](Session* session) {
    delete session;
    MutexLock lock(&mu_);
    is_left_ = true;
    left_.NotifyAll();
  });
  MutexLock lock(&contexts_->mu_);
  id_ = contexts_->next_id_++;
  contexts_->sessions_[id_] = session_;
  ExchangeRole({.id = id_, .session = session_});
}

RankContexts::Scope::~Scope() {
  {
    MutexLock lock(&contexts_->mu_);
    contexts_->sessions_.erase(id_);
  }
  ExchangeRole({});
  session_.reset();
  MutexLock lock(&mu_);
  while (!is_left_) left_.Wait(&mu_);
}

RankContexts::Visit::Visit(Role role) : before_(ExchangeRole(std::move(role))) {}

RankContexts::Visit::~Visit() { ExchangeRole(std::move(before_)); }

RankContexts::Role RankContexts::CurrentRole() {
  const Role* const role = PerThread<Role>::IfMade();
  return role == nullptr ? Role() : *role;
}

bool RankContexts::MakeCurrent(ronda_context id) {
  if (id == 0) {
    ExchangeRole({});
    return true;
  }
  MutexLock lock(&mu_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return false;
  ExchangeRole({.id = id, .session = found->second});
  return true;
}

void RankContexts::Leave() { ExchangeRole({}); }

ronda_context RankContexts::Current() {
  const Role* const role = PerThread<Role>::IfMade();
  return role == nullptr ? 0 : role->id;
}

std::shared_ptr<Session> RankContexts::CurrentSession() {
  const Role* const role = PerThread<Role>::IfMade();
  return role == nullptr ? nullptr : role->session.lock();
}

absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller) {
  if (std::isnan(timeout_s)) return absl::InvalidArgumentError("monitored_barrier: timeout_s is not a number");
  Submission submission{.request = {.name = "ronda/barrier", .op = OpType::kBarrier}};
  ronda_call_options call = RONDA_CALL_OPTIONS_INIT;
  call.process_set = set;
  call.deadline_s = timeout_s;
  RONDA_RETURN_IF_ERROR(SetCall(call, caller, &submission));
  return submission;
}

absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent) {
  const int raw = RawValue(absent);
  if (raw != RONDA_ABSENT_NOT_COUNTED && raw != RONDA_ABSENT_COUNTED_AS_ZEROS) {
    return absl::InvalidArgumentError(absl::StrCat("join: absent ", raw, " is not one of ronda_absent, 0 or 1"));
  }
  return Submission{.request = {.name = "ronda/join",
                                .process_set = set,
                                .op = OpType::kJoin,
                                .absent = static_cast<TensorRequest::Absent>(raw)}};
}

namespace {

absl::StatusOr<std::vector<RankId>> ToRanks(absl::string_view function, const int* ranks, int count) {
  if (ranks != nullptr && count > 0) return std::vector<RankId>(ranks, ranks + count);
  return absl::InvalidArgumentError(absl::StrCat(function, ": there are no ranks: list those of the set"));
}

}  // namespace

absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count) {
  RONDA_ASSIGN_OR_RETURN(std::vector<RankId> members, ToRanks("ronda_add_process_set", ranks, count));
  return AddProcessSetSubmission(std::move(members));
}

Submission AddProcessSetSubmission(std::vector<RankId> ranks) {
  return {.request = {.name = "ronda/add_process_set", .op = OpType::kAddProcessSet, .members = std::move(ranks)}};
}

absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag) {
  RONDA_ASSIGN_OR_RETURN(std::vector<RankId> members, ToRanks("ronda_create_process_set", ranks, count));
  const bool has_tag = tag != nullptr && *tag != '\0';
  if (has_tag) RONDA_RETURN_IF_ERROR(CheckName("create_process_set", "tag", tag));
  std::string name = absl::StrCat("ronda/create_process_set/", absl::StrJoin(members, ","), "/", has_tag ? tag : "");
  return Submission{
      .request = {.name = std::move(name), .op = OpType::kCreateProcessSet, .members = std::move(members)}};
}

Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by) {
  return {.request = {
              .name = "ronda/remove_process_set", .process_set = by, .op = OpType::kRemoveProcessSet, .subject = id}};
}

Submission UnawaitedRemovalSubmission(ronda_process_set id, ProcessSetId by, const Caller& caller) {
  Submission submission = RemoveProcessSetSubmission(id, by);
  submission.request.limits = {.warning = absl::InfiniteDuration(), .deadline = caller.limits.deadline};
  return submission;
}

}  // namespace ronda
