#include "runtime/engine/executor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// "conv1/weight and 9 more"
std::string Label(const AgreedBucket& bucket) {
  const std::string& first = bucket.responses.front()->request.name;
  if (bucket.responses.size() == 1) return first;
  return absl::StrCat(first, " and ", bucket.responses.size() - 1, " more");
}

// Whether the operation changes who takes part in others, and moves no data.
bool IsMembership(OpType op) {
  return op == OpType::kJoin || op == OpType::kAddProcessSet || op == OpType::kRemoveProcessSet;
}

bool IsReduction(OpType op) {
  return op == OpType::kAllreduce || op == OpType::kReduce || op == OpType::kReduceScatter;
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
  RONDA_RETURN_IF_ERROR(FindEntries(bucket, group));
  const std::string label = Label(bucket);
  const BucketRun run = {.bucket = bucket,
                         .info = {.label = label,
                                  .group = group.size() == parts_.communicator->size() ? nullptr : &group,
                                  .op = op,
                                  .limits = bucket.responses.front()->request.limits.value_or(limits_)},
                         .position = group.PositionOf(parts_.communicator->rank()),
                         .entries = entries_,
                         .results = absl::MakeSpan(results_)};
  if (!run.takes_part()) return Carry(run);
  const uint64_t bytes = BytesOf(bucket);
  parts_.flight->Record(FlightKind::kStarted, op, label, bytes);
  const absl::Status status = Carry(run);
  parts_.flight->Record(status.ok() ? FlightKind::kFinished : FlightKind::kFailed, op, label, bytes);
  RONDA_RETURN_IF_ERROR(status);
  CompleteAll();
  return absl::OkStatus();
}

absl::Status Executor::FindEntries(const AgreedBucket& bucket, const Group& group) {
  entries_.clear();
  results_.clear();
  if (!group.Contains(parts_.communicator->rank())) return absl::OkStatus();
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
  return IsReduction(run.info.op) ? reductions_.Run(run) : exchanges_.Run(run);
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

void Executor::CompleteAll() {
  for (size_t i = 0; i < entries_.size(); ++i) parts_.queue->Complete(entries_[i], std::move(results_[i]));
}

}  // namespace ronda
