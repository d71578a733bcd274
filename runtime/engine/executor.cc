// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/executor.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/gradients.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/device_completion.h"

namespace ronda {
namespace {

// Whether the votes travel with the data. On a device a reduce votes separately: its result may go to where its input
// is, and the copy that allows this would come before the votes are known.
bool VotesWithData(const TensorRequest& request) {
  if (request.memory != Memory::kHost && request.op == OpType::kReduce) return false;
  return TraitsOf(request.op).reduces && request.reduction != Reduction::kAdasum;
}

// `run` after the vote has approved it.
BucketRun Decided(const BucketRun& run) {
  BucketRun decided = run;
  decided.info.ballot = nullptr;
  return decided;
}

bool IsOpen(const CallInfo& info) { return info.ballot != nullptr && info.ballot->result == Ballot::Result::kOpen; }

// If a rank does not come, the warning first leads to a negotiation, which finds that rank. The communicator gives up
// only when rank 0 would have given up.
WaitLimits LimitsOfVote(const WaitLimits& limits) {
  return {.warning = std::min(limits.warning, limits.deadline), .deadline = AnswerDeadline(limits)};
}

// Ranks that have agreed on an operation start it at once, unless their machine is overloaded, and a rank that does not
// start it fails the job. So an operation's own short deadline applies only to the agreement.
WaitLimits LimitsOf(const TensorRequest& request, const WaitLimits& jobs) {
  constexpr absl::Duration kLeast = absl::Seconds(10);
  if (!request.limits) return jobs;
  WaitLimits limits = *request.limits;
  limits.deadline = std::max(limits.deadline, std::min(kLeast, jobs.deadline));
  return limits;
}

// A GPU driver's error names no tensor, so this adds the name.
absl::Status WhileGiving(const CallInfo& info, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInternal) return status;
  return absl::InternalError(absl::StrCat(Name(info.op), " '", info.label, "': ", status.message()));
}

// The bytes of this rank's tensors. In some operations each rank has its own first dimension, and the agreed request
// has none.
uint64_t BytesOf(const BucketRun& run) {
  const FirstDimension first = TraitsOf(run.info.op).first_dimension;
  const bool is_own = first == FirstDimension::kGathered || first == FirstDimension::kLocal;
  uint64_t bytes = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    bytes += TensorBytes(is_own && run.takes_part() ? run.submission(i).request : run.request(i));
  }
  return bytes;
}

// A bucket without a vote was negotiated: a rank that had reported its tensors has been waiting since then.
TensorLog::Collective CollectiveOf(const BucketRun& run) {
  TensorLog::Collective collective = {.bucket = run.bucket, .label = run.info.label, .bytes = BytesOf(run)};
  if (run.info.ballot != nullptr) {
    collective.mode = BucketMode::kScheduled;
  } else {
    for (const TensorEntry* entry : run.entries) collective.ready = std::max(collective.ready, entry->reported);
  }
  return collective;
}

}  // namespace

Executor::Executor(const Parts& parts, WaitLimits limits)
    : parts_(parts), limits_(limits), host_plane_(parts.communicator), host_(&host_plane_, parts.communicator) {}

absl::Status Executor::Execute(const AgreedBucket& bucket) {
  const OpType op = bucket.responses.front()->request.op;
  // A join concerns all members, even those that have joined.
  const Group& group = op == OpType::kJoin ? *bucket.members : *bucket.participants;
  ForgetEntries();
  if (group.Contains(parts_.communicator->rank())) RONDA_RETURN_IF_ERROR(FindEntries(bucket));
  return CarryAndComplete(MakeRun(bucket, group));
}

absl::StatusOr<Executor::Voted> Executor::ExecuteIfAllApprove(const AgreedBucket& bucket, const Vote& vote) {
  Ballot ballot = {.own = vote.own, .when_late = vote.when_late};
  const bool approves = vote.own == Ballot::Vote::kApprove;
  ForgetEntries();
  if (approves) {
    entries_.assign(vote.entries.begin(), vote.entries.end());
    results_.resize(entries_.size());
  }
  BucketRun run = MakeRun(bucket, *bucket.participants);
  if (!approves) run.position.reset();
  run.info.limits = LimitsOfVote(run.info.limits);
  run.info.ballot = &ballot;
  RONDA_RETURN_IF_ERROR(CarryAndComplete(run));
  return Voted{.result = ballot.result, .open = std::exchange(open_, {})};
}

// The label looks like "conv1/weight and 9 more".
BucketRun Executor::MakeRun(const AgreedBucket& bucket, const Group& group) {
  const TensorRequest& first = bucket.responses.front()->request;
  label_ = first.name;
  if (bucket.responses.size() > 1) absl::StrAppend(&label_, " and ", bucket.responses.size() - 1, " more");
  return {.bucket = bucket,
          .info = {.label = label_,
                   .group = group.size() == parts_.communicator->size() ? nullptr : &group,
                   .op = first.op,
                   .limits = LimitsOf(first, limits_)},
          .position = group.PositionOf(parts_.communicator->rank()),
          .entries = entries_,
          .results = absl::MakeSpan(results_)};
}

absl::Status Executor::CarryAndComplete(const BucketRun& run) {
  const bool is_on_device = run.request(0).memory != Memory::kHost;
  if (!run.takes_part()) {
    parts_.log->PassedBy();
    return is_on_device ? CarryOnDevice(run) : Carry(run, host_);
  }
  parts_.log->Started(CollectiveOf(run));
  const absl::Status status = is_on_device ? CarryOnDevice(run) : Carry(run, host_);
  if (status.ok() && IsVetoed(run.info)) {
    parts_.log->Ended(CollectiveOf(run), BucketOutcome::kVetoed);
    return status;
  }
  if (is_on_device) return status;
  parts_.log->Ended(CollectiveOf(run), status.ok() ? BucketOutcome::kDone : BucketOutcome::kFailed);
  RONDA_RETURN_IF_ERROR(status);
  parts_.queue->CompleteAll(run.entries, run.results);
  return absl::OkStatus();
}

absl::Status Executor::CarryOnDevice(const BucketRun& run) {
  // In a job of one rank the outcome of the vote is known, and a rank without a lane cannot vote on the device.
  const bool votes_there =
      parts_.devices->lane() != nullptr && parts_.communicator->size() > 1 && VotesWithData(run.request(0));
  if (run.info.ballot != nullptr && !votes_there) {
    RONDA_RETURN_IF_ERROR(VoteFirst(run));
    return IsVetoed(run.info) ? absl::OkStatus() : CarryOnDevice(Decided(run));
  }
  RONDA_ASSIGN_OR_RETURN(const Opened opened, OpenDevice(run));
  if (opened == Opened::kRefused) return absl::OkStatus();
  const absl::Status status = GiveToDevice(run);
  if (status.ok()) return status;
  parts_.log->Ended(CollectiveOf(run), BucketOutcome::kFailed);
  return WhileGiving(run.info, status);
}

absl::StatusOr<Executor::Opened> Executor::OpenDevice(const BucketRun& run) {
  if (parts_.devices->lane() != nullptr) return Opened::kYes;
  RONDA_ASSIGN_OR_RETURN(const DeviceLanes::Opening opening, parts_.devices->Open(run.info));
  if (opening.lane != nullptr) {
    device_.emplace(opening.lane, parts_.communicator);
    return Opened::kYes;
  }
  parts_.log->Ended(CollectiveOf(run), BucketOutcome::kFailed);
  RONDA_RETURN_IF_ERROR(RefuseAll(run, opening.refusal));
  return Opened::kRefused;
}

absl::Status Executor::RefuseAll(const BucketRun& run, const absl::Status& status) {
  for (const TensorEntry* entry : run.entries) {
    const TensorRequest& request = entry->submission.request;
    parts_.log->Failed(request);
    RONDA_RETURN_IF_ERROR(Refuse(entry, AboutTensor(request.name, status)));
  }
  return absl::OkStatus();
}

absl::Status Executor::Refuse(const TensorEntry* entry, const absl::Status& status) {
  if (const std::shared_ptr<DeviceCompletion> undecided = entry->undecided) {
    // The gate of its bucket stays closed until the job has failed.
    if (undecided->bucket().Refuse(entry->submission.request.name, status)) return status;
    RONDA_RETURN_IF_ERROR(NoteAgain(undecided));
  }
  parts_.queue->Complete(entry, status);
  return absl::OkStatus();
}

absl::Status Executor::GiveToDevice(const BucketRun& run) {
  ready_.Clear();
  for (const TensorEntry* entry : run.entries) {
    if (entry->ready != nullptr) ready_.Add(entry->ready.get());
  }
  DeviceLane& lane = *parts_.devices->lane();
  const Device::Current current(&lane.device());
  // Named as in the timeline.
  const DeviceRange range(lane.plugin(), absl::StrCat(absl::AsciiStrToUpper(Name(run.info.op)), " ", run.info.label));
  RONDA_RETURN_IF_ERROR(lane.Begin(
      {.label = run.info.label, .op = run.info.op, .bytes = BytesOf(run), .limits = run.info.limits}, ready_.points()));
  RONDA_RETURN_IF_ERROR(Carry(run, *device_));
  const bool is_awaited = run.takes_part() || IsOpen(run.info);
  if (is_awaited && !IsVetoed(run.info)) return FinishOnDevice(run);
  lane.Drop();
  return absl::OkStatus();
}

absl::Status Executor::FinishOnDevice(const BucketRun& run) {
  const bool is_open = IsOpen(run.info);
  const bool completes_now = is_open && CompletesAtLaunch(run);
  LaunchedBucket::Undecided undecided = {};
  if (completes_now) undecided = {.vote = run.info.ballot->open_vote, .number = undecided_.Add()};
  using Waiting = DeviceCompletion::Waiting;
  RONDA_ASSIGN_OR_RETURN(
      const std::shared_ptr<DeviceCompletion> completion,
      parts_.devices->lane()->Finish(is_open ? Waiting::kEngine : Waiting::kHandles, std::move(undecided)));
  for (OperationResult& result : run.results) result.completion = completion;
  if (run.takes_part()) parts_.log->Ended(CollectiveOf(run), BucketOutcome::kLaunched);
  if (!is_open) return CompleteAll(run.entries, run.results);
  if (completes_now) parts_.queue->Launch(run.entries, run.results, completion);
  open_ = {.entries = std::move(entries_),
           .results = std::move(results_),
           .vote = run.info.ballot->open_vote,
           .completion = completion,
           .handles = completes_now ? OpenBucket::Handles::kAreComplete : OpenBucket::Handles::kWait};
  ForgetEntries();
  return absl::OkStatus();
}

// Whether the handles may complete at the launch. If the vote is lost later, the handles must not have changed. So the
// results must be in the caller's memory: parts of a tensor may differ if fewer ranks take part. The bucket must detect
// no overflow, because a flag would be visible before the result. And a tensor cannot be in two buckets that were
// launched before the decision.
bool Executor::CompletesAtLaunch(const BucketRun& run) const {
  const TensorRequest& kind = run.request(0);
  return run.takes_part() && parts_.devices->lane()->has_gates() && kind.op == OpType::kAllreduce &&
         kind.overflow == TensorRequest::Overflow::kIgnored &&
         std::all_of(run.entries.begin(), run.entries.end(),
                     [](const TensorEntry* entry) { return entry->undecided == nullptr; });
}

absl::Status Executor::Complete(OpenBucket& open) {
  if (open.handles == OpenBucket::Handles::kWait) return CompleteAll(open.entries, absl::MakeSpan(open.results));
  undecided_.Settle(open.completion->bucket().number());
  parts_.queue->CompleteAll(open.entries, absl::MakeSpan(open.results));
  return absl::OkStatus();
}

void Executor::NoteVeto(const OpenBucket& open) {
  if (open.handles == OpenBucket::Handles::kAreComplete) open.completion->bucket().ExpectAgain(open.entries.size());
}

absl::Status Executor::CompleteAll(absl::Span<const TensorEntry* const> entries, absl::Span<OperationResult> results) {
  for (const TensorEntry* entry : entries) {
    if (entry->undecided != nullptr) RONDA_RETURN_IF_ERROR(NoteAgain(entry->undecided));
  }
  parts_.queue->CompleteAll(entries, results);
  return absl::OkStatus();
}

absl::Status Executor::NoteAgain(const std::shared_ptr<DeviceCompletion>& undecided) {
  if (!undecided->bucket().NoteAgain()) return absl::OkStatus();
  undecided_.Settle(undecided->bucket().number());
  return parts_.devices->lane()->Relaunch(undecided);
}

void Executor::ForgetEntries() {
  entries_.clear();
  results_.clear();
}

absl::Status Executor::FindEntries(const AgreedBucket& bucket) {
  for (const auto& response : bucket.responses) {
    const TensorEntry* entry = parts_.queue->Find(response->request.key());
    if (entry == nullptr) {
      return absl::InternalError(absl::StrCat("the coordinator rank orders the ", Name(response->request.op),
                                              " of tensor '", response->request.name,
                                              "', which was not submitted on this rank"));
    }
    entries_.push_back(entry);
  }
  results_.resize(entries_.size());
  return absl::OkStatus();
}

absl::Status Executor::Carry(const BucketRun& run, Lane& lane) {
  if (TraitsOf(run.info.op).membership) return SettleMembership(run);
  if (run.info.ballot == nullptr || VotesWithData(run.request(0))) {
    return TraitsOf(run.info.op).reduces ? lane.reductions.Run(run) : lane.exchanges.Run(run);
  }
  RONDA_RETURN_IF_ERROR(VoteFirst(run));
  // The vote was itself the barrier.
  if (IsVetoed(run.info) || run.info.op == OpType::kBarrier) return absl::OkStatus();
  return Carry(Decided(run), lane);
}

absl::Status Executor::SettleMembership(const BucketRun& run) {
  for (size_t i = 0; i < run.size(); ++i) {
    const TensorRequest& request = run.request(i);
    RONDA_RETURN_IF_ERROR(parts_.process_sets->Apply(*run.bucket.responses[i]));
    if (request.op == OpType::kRemoveProcessSet) DropSet(request.subject);
    if (!run.takes_part()) continue;
    run.results[i].number = request.op == OpType::kJoin ? request.root : request.subject;
  }
  return absl::OkStatus();
}

void Executor::DropSet(ProcessSetId process_set) {
  host_.reductions.Drop(process_set);
  if (device_) device_->reductions.Drop(process_set);
  parts_.queue->Forget(process_set);
}

absl::StatusOr<ResultData> HostPlane::Allocate(const TensorRequest& request, size_t bytes) {
  ResultData data(new (std::nothrow) std::byte[bytes]);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes that ", Name(request.op), " '", request.name, "' returns"));
  }
  return data;
}

absl::StatusOr<ResultData> HostPlane::AllocateZeros(absl::string_view tensor, size_t bytes) {
  ResultData data(new (std::nothrow) std::byte[bytes]());
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes of error feedback of tensor '", tensor, "'"));
  }
  return data;
}

absl::Status HostPlane::Copy(void* dst, const void* src, size_t bytes) {
  // A tensor without elements may have no buffer.
  if (bytes > 0) std::memcpy(dst, src, bytes);
  return absl::OkStatus();
}

absl::Status HostPlane::PrepareOverflow(size_t tensors) {
  flags_.clear();
  flags_.reserve(tensors);
  return absl::OkStatus();
}

absl::StatusOr<uint8_t*> HostPlane::FindNonFinite(absl::Span<const TensorView> tensors, DType dtype) {
  for (const TensorView& tensor : tensors) {
    flags_.push_back(tensor.count > 0 && kernels::HasNonFinite(tensor.data, dtype, tensor.count) ? 1 : 0);
  }
  return flags_.data();
}

absl::Status HostPlane::DeliverOverflow(const uint8_t* flags, absl::Span<OperationResult> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (flags[i] != 0) results[i].overflow = OperationResult::Overflow::kFound;
  }
  return absl::OkStatus();
}

bool ScheduleRunner::NoteCallOff(uint64_t schedule) {
  schedule_.NoteCallOff(schedule);
  return schedule_.called_off();
}

bool ScheduleRunner::SubmitAgain(const TensorEntry& entry) {
  const TensorEntry::Scheduled& known = entry.scheduled;
  if (!locked() || known.schedule != schedule_.number() || known.version != entry.version) return false;
  schedule_.SubmitAgain(known.position);
  return true;
}

void ScheduleRunner::Submit(TensorEntry& entry, std::optional<CacheId> id) {
  const std::optional<LockedSchedule::Position> position = schedule_.Submit(id);
  if (!position) return;
  if (position->bucket >= entries_.size()) entries_.resize(position->bucket + 1);
  std::vector<const TensorEntry*>& bucket = entries_[position->bucket];
  if (position->tensor >= bucket.size()) bucket.resize(position->tensor + 1);
  bucket[position->tensor] = &entry;
  entry.scheduled = {.schedule = schedule_.number(), .version = entry.version, .position = *position};
}

void ScheduleRunner::CheckPatience(absl::Time now) {
  schedule_.CheckPatience({.has_submissions = !parts_.queue->empty(), .is_awaited = parts_.progress->waiting() > 0},
                          now);
}

absl::StatusOr<ScheduleRunner::Outcome> ScheduleRunner::RunNext(absl::Time now) {
  const bool has_settled = IsOpenOver();
  RONDA_RETURN_IF_ERROR(SettleOpen(now));
  if (schedule_.called_off()) schedule_.RequestUnlock();
  CheckPatience(now);
  if (schedule_.unlocking() || now >= OpenDeadline()) CallOff();
  if (schedule_.HasToUnlock()) return Unlock(now);
  if (IsStuckBehindVeto()) {
    schedule_.RequestUnlock();
    CallOff();
  }
  if (const AgreedBucket* const bucket = Next()) return Enter(*bucket, now);
  NoteDemand();
  return has_settled ? Outcome::kCarriedOut : Outcome::kNotReady;
}

const AgreedBucket* ScheduleRunner::Next() const {
  const AgreedBucket* const bucket = schedule_.Next();
  return bucket == nullptr || schedule_.unlocking() || MayGive(*bucket) ? bucket : nullptr;
}

bool ScheduleRunner::MayGive(const AgreedBucket& bucket) const {
  const auto entries = EntriesOfNext(bucket);
  return std::all_of(entries.begin(), entries.end(),
                     [this](const TensorEntry* entry) { return parts_.executor->MayGive(*entry); });
}

bool ScheduleRunner::IsStuckBehindVeto() const {
  return !schedule_.has_open() && !schedule_.unlocking() && schedule_.Next() != nullptr && Next() == nullptr;
}

absl::Span<const TensorEntry* const> ScheduleRunner::EntriesOfNext(const AgreedBucket& bucket) const {
  return absl::MakeConstSpan(entries_[schedule_.next_bucket()]).first(bucket.responses.size());
}

void ScheduleRunner::NoteDemand() {
  const bool waits = locked() && schedule_.has_open() &&
                     (parts_.queue->has_followers() || parts_.progress->waiting() > 0 || schedule_.Next() != nullptr);
  if (std::exchange(demands_, waits) == waits) return;
  if (waits) {
    parts_.executor->BeginDemand();
  } else {
    parts_.executor->EndDemand();
  }
}

absl::StatusOr<ScheduleRunner::Outcome> ScheduleRunner::Enter(const AgreedBucket& bucket, absl::Time now) {
  const uint64_t rounds = schedule_.progress().rounds;
  RONDA_ASSIGN_OR_RETURN(Executor::Voted voted, Execute(bucket));
  switch (voted.result) {
    case Ballot::Result::kCarriedOut:
      schedule_.Enter(LockedSchedule::Outcome::kCarriedOut, now);
      NoteCarriedOut(rounds, now);
      break;
    case Ballot::Result::kOpen:
      schedule_.EnterOpen(now);
      open_.push_back(std::move(voted.open));
      break;
    case Ballot::Result::kVetoed:
      schedule_.Enter(LockedSchedule::Outcome::kVetoed, now);
      if (schedule_.HasToUnlock()) return Unlock(now);
      break;
  }
  return Outcome::kCarriedOut;
}

absl::StatusOr<Executor::Voted> ScheduleRunner::Execute(const AgreedBucket& bucket) {
  const auto call_off = [&] {
    parts_.log->Waited(bucket);
    CallOff();
  };
  Executor::Vote vote = {.own = Ballot::Vote::kVeto, .entries = {}, .when_late = call_off};
  if (!schedule_.unlocking()) {
    vote.own = Ballot::Vote::kApprove;
    vote.entries = EntriesOfNext(bucket);
  }
  return parts_.executor->ExecuteIfAllApprove(bucket, vote);
}

void ScheduleRunner::NoteCarriedOut(uint64_t rounds_before, absl::Time now) {
  parts_.counters->buckets_scheduled.Add();
  if (schedule_.progress().rounds == rounds_before) return;
  parts_.log->Cycled();
  parts_.counters->schedule_rounds.Add();
  if (parts_.role == nullptr) return;
  parts_.role->EndRound(now);
  if (parts_.role->wants_to_unlock()) schedule_.RequestUnlock();
}

absl::Status ScheduleRunner::SettleOpen(absl::Time now) {
  while (IsOpenOver()) {
    Executor::OpenBucket& first = open_.front();
    const uint64_t rounds = schedule_.progress().rounds;
    switch (first.vote->outcome()) {
      case OpenVote::Outcome::kOpen: {
        const absl::Status& status = first.completion->status();
        return status.ok() ? absl::InternalError("the device has carried out a bucket without counting its votes")
                           : status;
      }
      case OpenVote::Outcome::kCarriedOut:
        schedule_.Settle(LockedSchedule::Outcome::kCarriedOut);
        RONDA_RETURN_IF_ERROR(parts_.executor->Complete(first));
        NoteCarriedOut(rounds, now);
        break;
      case OpenVote::Outcome::kVetoed:
        schedule_.Settle(LockedSchedule::Outcome::kVetoed);
        parts_.executor->NoteVeto(first);
        break;
    }
    open_.pop_front();
  }
  return absl::OkStatus();
}

bool ScheduleRunner::IsOpenOver() const {
  if (open_.empty()) return false;
  const Executor::OpenBucket& first = open_.front();
  // The watch also settles the bucket after an error of the device.
  return first.vote->outcome() != OpenVote::Outcome::kOpen || first.completion->is_settled();
}

// The device waits for the other ranks, so no host code notices there that they are late.
absl::Time ScheduleRunner::OpenDeadline() const {
  if (!schedule_.has_open() || schedule_.called_off()) return absl::InfiniteFuture();
  const WaitLimits& limits = parts_.executor->limits();
  return schedule_.oldest_open_since() + std::min(limits.warning, limits.deadline);
}

void ScheduleRunner::CallOff() {
  if (schedule_.CallOff()) parts_.control->CallOff(schedule_.number());
}

ScheduleRunner::Outcome ScheduleRunner::Unlock(absl::Time now) {
  parts_.counters->schedules_left.Add();
  NoteDemand();
  if (schedule_.Unlock() == LockedSchedule::Cause::kOwn) parts_.counters->own_vetoes.Add();
  if (parts_.role != nullptr) parts_.role->Unlock(schedule_.progress(), now);
  return Outcome::kUnlocked;
}

}  // namespace ronda
