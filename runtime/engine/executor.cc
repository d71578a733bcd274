// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/executor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/gradients.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

bool VotesWithData(const TensorRequest& request) {
  return VoteGoesWithData({.op = request.op,
                           .memory = request.memory,
                           .reduction = request.reduction,
                           .dtype = request.dtype,
                           .wire = request.wire});
}

// The memory of this rank's tensors in a bucket.
struct Extent {
  const std::byte* begin = nullptr;  // nullptr: they have no elements
  size_t bytes = 0;
};

// Returns the memory of adjacent tensors; nullopt if they are not adjacent. Empty tensors may lie anywhere. NCCL needs
// aligned elements.
std::optional<Extent> AdjacentExtentOf(const BucketRun& run) {
  Extent whole;
  for (size_t i = 0; i < run.size(); ++i) {
    const size_t bytes = TensorBytes(run.request(i));
    if (bytes == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(run.submission(i).input);
    if (whole.begin == nullptr) whole.begin = begin;
    const bool is_aligned = reinterpret_cast<uintptr_t>(begin) % SizeOf(run.request(i).dtype) == 0;
    if (run.submission(i).output != begin || begin != whole.begin + whole.bytes || !is_aligned) return std::nullopt;
    whole.bytes += bytes;
  }
  return whole;
}

// Returns the offset of `extent` in the memory; nullopt if it is not entirely in the memory.
std::optional<size_t> OffsetIn(const LaneMemory& memory, const Extent& extent) {
  const std::optional<size_t> offset = memory.OffsetOf(extent.begin);
  return offset.has_value() && extent.bytes <= memory.bytes() - *offset ? offset : std::nullopt;
}

// If a rank does not vote, the other ranks start to negotiate after the warning time, and the negotiation finds the
// missing rank. The communicator gives up only after rank 0 would have given up.
WaitLimits LimitsOfVote(const WaitLimits& limits) {
  return {.warning = std::min(limits.warning, limits.deadline), .deadline = AnswerDeadline(limits)};
}

// Ranks that have agreed on an operation start it immediately, unless their machine is overloaded. A rank that does not
// start it fails the job. So a short deadline of an operation applies only until the ranks have agreed.
WaitLimits LimitsOf(const TensorRequest& request, const WaitLimits& jobs) {
  constexpr absl::Duration kLeast = absl::Seconds(10);
  if (!request.limits) return jobs;
  WaitLimits limits = *request.limits;
  limits.deadline = std::max(limits.deadline, std::min(kLeast, jobs.deadline));
  return limits;
}

// Adds the tensor's name to an error of the GPU driver, which names no tensor.
absl::Status WhileGiving(const CallInfo& info, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kInternal) return status;
  return absl::InternalError(absl::StrCat(Name(info.op), " '", info.label, "': ", status.message()));
}

// Returns the bytes of this rank's tensors in the bucket. In some operations each rank has its own first dimension,
// which the agreed request leaves out.
uint64_t BytesOf(const BucketRun& run) {
  const FirstDimension first = TraitsOf(run.info.op).first_dimension;
  const bool is_own = first == FirstDimension::kGathered || first == FirstDimension::kLocal;
  uint64_t bytes = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    bytes += TensorBytes(is_own && run.takes_part() ? run.submission(i).request : run.request(i));
  }
  return bytes;
}

// Describes the bucket for the tensor log. The ranks vote only on buckets of a schedule. For a negotiated bucket, a
// rank's wait began when the rank reported the tensors of the bucket.
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
  // All members take part in a join, even the members that have joined.
  const Group& group = op == OpType::kJoin ? *bucket.members : *bucket.participants;
  ForgetEntries();
  if (group.Contains(parts_.communicator->rank())) RONDA_RETURN_IF_ERROR(FindEntries(bucket));
  return CarryAndComplete(MakeRun(bucket, group));
}

absl::StatusOr<Executor::Decision> Executor::ExecuteIfAllApprove(const AgreedBucket& bucket, const Vote& vote) {
  Ballot ballot = {.own = vote.own, .own_flags = vote.flags, .when_late = vote.when_late};
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
  if (approves) ballot.own_layout = OwnLayout(run);
  RONDA_RETURN_IF_ERROR(CarryAndComplete(run));
  return Decision{.result = ballot.result, .flags = ballot.flags};
}

// Describes `bucket` as a BucketRun with a label such as "conv1/weight and 9 more".
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

BucketLayout Executor::OwnLayout(const BucketRun& run) const {
  const DeviceLane* const lane = parts_.devices->lane();
  const TensorRequest& kind = run.request(0);
  if (kind.memory != Memory::kCuda || kind.op != OpType::kAllreduce) return BucketLayout::kAny;
  if (lane == nullptr) return BucketLayout::kAny;
  const std::shared_ptr<LaneMemory> memory = parts_.devices->memory();
  if (memory == nullptr && !(lane->reduces_in_place() && run.size() > 1)) return BucketLayout::kAny;
  const std::optional<Extent> extent = AdjacentExtentOf(run);
  if (!extent.has_value()) return BucketLayout::kAny;
  if (memory == nullptr) return BucketLayout::kAdjacent;
  const std::optional<size_t> offset = OffsetIn(*memory, *extent);
  return offset.has_value() ? places_.LayoutAt(kind.name, *offset) : BucketLayout::kAny;
}

absl::StatusOr<BucketRun> Executor::Decided(const BucketRun& run) {
  BucketRun decided = run;
  decided.layout = run.info.ballot->layout;
  decided.info.ballot = nullptr;
  if (decided.layout != BucketLayout::kMoved) return decided;
  // This rank's tensors are in the memory, or the layout would be kAny.
  const size_t offset = *OffsetIn(*parts_.devices->memory(), *AdjacentExtentOf(run));
  RONDA_ASSIGN_OR_RETURN(decided.layout,
                         places_.Compare(*parts_.communicator, decided.info, run.request(0).name, offset));
  return decided;
}

absl::Status Executor::CarryAndComplete(const BucketRun& run) {
  if (!run.takes_part()) {
    parts_.log->PassedBy();
    return Carry(run).status();
  }
  parts_.log->Started(CollectiveOf(run));
  const absl::StatusOr<BucketOutcome> outcome = Carry(run);
  parts_.log->Ended(CollectiveOf(run), outcome.ok() ? *outcome : BucketOutcome::kFailed);
  RONDA_RETURN_IF_ERROR(outcome.status());
  if (*outcome == BucketOutcome::kDone || *outcome == BucketOutcome::kLaunched) {
    parts_.queue->CompleteAll(run.entries, run.results);
  }
  return absl::OkStatus();
}

absl::StatusOr<BucketOutcome> Executor::Carry(const BucketRun& run) {
  if (run.info.ballot != nullptr && !VotesWithData(run.request(0))) {
    RONDA_RETURN_IF_ERROR(parts_.communicator->Barrier(run.info));
    if (IsVetoed(run.info)) return BucketOutcome::kVetoed;
    // A barrier is complete after its vote, because the vote itself is a barrier.
    if (run.info.op == OpType::kBarrier) return BucketOutcome::kDone;
    RONDA_ASSIGN_OR_RETURN(const BucketRun decided, Decided(run));
    return Carry(decided);
  }
  if (run.request(0).memory != Memory::kHost) return CarryOnDevice(run);
  RONDA_RETURN_IF_ERROR(RunOn(host_, run));
  return IsVetoed(run.info) ? BucketOutcome::kVetoed : BucketOutcome::kDone;
}

absl::Status Executor::RunOn(Lane& lane, const BucketRun& run) {
  if (TraitsOf(run.info.op).membership) return SettleMembership(run);
  return TraitsOf(run.info.op).reduces ? lane.reductions.Run(run) : lane.exchanges.Run(run);
}

absl::StatusOr<BucketOutcome> Executor::CarryOnDevice(const BucketRun& run) {
  if (parts_.devices->lane() == nullptr) {
    RONDA_ASSIGN_OR_RETURN(const DeviceLanes::Opening opening, parts_.devices->Open(run.info));
    if (opening.lane == nullptr) {
      RefuseAll(run, opening.refusal);
      return BucketOutcome::kFailed;
    }
    device_.emplace(opening.lane, parts_.communicator);
  }
  RONDA_RETURN_IF_ERROR(WhileGiving(run.info, GiveToDevice(run)));
  return BucketOutcome::kLaunched;
}

void Executor::RefuseAll(const BucketRun& run, const absl::Status& status) {
  for (const TensorEntry* entry : run.entries) {
    const TensorRequest& request = entry->submission.request;
    parts_.log->Failed(request);
    parts_.queue->Complete(entry, AboutTensor(request.name, status));
  }
}

absl::Status Executor::GiveToDevice(const BucketRun& run) {
  ready_.Clear();
  for (const TensorEntry* entry : run.entries) {
    if (entry->ready != nullptr) ready_.Add(entry->ready.get());
  }
  DeviceLane& lane = *parts_.devices->lane();
  const Device::Current current(&lane.device());
  // The range in the profiler has the same name as the bucket's event in the timeline.
  const DeviceRange range(lane.plugin(), absl::StrCat(absl::AsciiStrToUpper(Name(run.info.op)), " ", run.info.label));
  RONDA_RETURN_IF_ERROR(lane.Begin(
      {.label = run.info.label, .op = run.info.op, .bytes = BytesOf(run), .limits = run.info.limits}, ready_.points()));
  RONDA_RETURN_IF_ERROR(RunOn(*device_, run));
  if (!run.takes_part()) {
    lane.Drop();
    return absl::OkStatus();
  }
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceCompletion> completion, lane.Finish());
  for (OperationResult& result : run.results) result.completion = completion;
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

}  // namespace ronda
