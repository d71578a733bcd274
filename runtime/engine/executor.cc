#include "runtime/engine/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/answer_watch.h"

namespace ronda {
namespace {

// Whether the operation changes who takes part in others, and moves no data.
bool IsMembership(OpType op) {
  return op == OpType::kJoin || op == OpType::kAddProcessSet || op == OpType::kRemoveProcessSet;
}

bool IsReduction(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kReduce || op == OpType::kReduceScatter;
}

// Whether the votes travel with the data.
bool VotesWithData(const TensorRequest& request) {
  return IsReduction(request.op) && request.reduction != Reduction::kAdasum;
}

// A rank that does not come is first looked for by the negotiation, which the warning brings about; the communicator
// gives up only when rank 0 would have.
WaitLimits LimitsOfVote(const WaitLimits& limits) {
  return {.warning = std::min(limits.warning, limits.deadline), .deadline = AnswerDeadline(limits)};
}

uint64_t BytesOf(const AgreedBucket& bucket) {
  uint64_t bytes = 0;
  for (const auto& response : bucket.responses) bytes += TensorBytes(response->request);
  return bytes;
}

}  // namespace

Executor::Executor(const Parts& parts, WaitLimits limits)
    : parts_(parts), limits_(limits), reductions_(parts.communicator), exchanges_(parts.communicator) {}

absl::Status Executor::Execute(const AgreedBucket& bucket) {
  const OpType op = bucket.responses.front()->request.op;
  // Joins and changes of process sets are everybody's, those that have joined included.
  const Group& group = IsMembership(op) ? *bucket.members : *bucket.participants;
  ForgetEntries();
  if (group.Contains(parts_.communicator->rank())) RONDA_RETURN_IF_ERROR(FindEntries(bucket));
  return CarryAndComplete(MakeRun(bucket, group));
}

absl::StatusOr<Ballot::Result> Executor::ExecuteIfAllStay(const AgreedBucket& bucket, const Vote& vote) {
  Ballot ballot = {.own = vote.own, .when_late = vote.when_late};
  const bool stays = vote.own == Ballot::Vote::kStay;
  ForgetEntries();
  if (stays) {
    entries_.assign(vote.entries.begin(), vote.entries.end());
    results_.resize(entries_.size());
  }
  BucketRun run = MakeRun(bucket, *bucket.participants);
  if (!stays) run.position.reset();
  run.info.limits = LimitsOfVote(run.info.limits);
  run.info.ballot = &ballot;
  RONDA_RETURN_IF_ERROR(CarryAndComplete(run));
  return ballot.result;
}

// The label is "conv1/weight and 9 more".
BucketRun Executor::MakeRun(const AgreedBucket& bucket, const Group& group) {
  const TensorRequest& first = bucket.responses.front()->request;
  label_ = first.name;
  if (bucket.responses.size() > 1) absl::StrAppend(&label_, " and ", bucket.responses.size() - 1, " more");
  return {.bucket = bucket,
          .info = {.label = label_,
                   .group = group.size() == parts_.communicator->size() ? nullptr : &group,
                   .op = first.op,
                   .limits = first.limits.value_or(limits_)},
          .position = group.PositionOf(parts_.communicator->rank()),
          .entries = entries_,
          .results = absl::MakeSpan(results_)};
}

absl::Status Executor::CarryAndComplete(const BucketRun& run) {
  if (!run.takes_part()) return Carry(run);
  const uint64_t bytes = BytesOf(run.bucket);
  parts_.flight->Record(FlightKind::kStarted, run.info.op, run.info.label, bytes);
  const absl::Status status = Carry(run);
  if (status.ok() && IsVetoed(run.info)) return status;
  parts_.flight->Record(status.ok() ? FlightKind::kFinished : FlightKind::kFailed, run.info.op, run.info.label, bytes);
  RONDA_RETURN_IF_ERROR(status);
  parts_.queue->CompleteAll(entries_, absl::MakeSpan(results_));
  return absl::OkStatus();
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

absl::Status Executor::Carry(const BucketRun& run) {
  if (IsMembership(run.info.op)) return SettleMembership(run);
  if (run.info.ballot != nullptr && !VotesWithData(run.request(0))) return CarryAfterVote(run);
  return IsReduction(run.info.op) ? reductions_.Run(run) : exchanges_.Run(run);
}

absl::Status Executor::CarryAfterVote(const BucketRun& run) {
  RONDA_RETURN_IF_ERROR(parts_.communicator->Barrier(run.info));
  // A barrier has had its vote for a barrier.
  if (IsVetoed(run.info) || run.info.op == OpType::kBarrier) return absl::OkStatus();
  BucketRun decided = run;
  decided.info.ballot = nullptr;
  return Carry(decided);
}

absl::Status Executor::SettleMembership(const BucketRun& run) {
  for (size_t i = 0; i < run.size(); ++i) {
    const TensorRequest& request = run.request(i);
    RONDA_RETURN_IF_ERROR(parts_.process_sets->Apply(*run.bucket.responses[i]));
    if (request.op == OpType::kRemoveProcessSet) reductions_.Drop(request.subject);
    if (!run.takes_part()) continue;
    run.results[i].number = request.op == OpType::kJoin ? request.root : request.subject;
  }
  return absl::OkStatus();
}

}  // namespace ronda
