#include "runtime/engine/reductions.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/adasum.h"

namespace ronda {
namespace {

ReduceCall::Delivery DeliveryOf(OpType op) {
  return op == OpType::kAllreduce ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts;
}

}  // namespace

absl::Status Reductions::Run(const BucketRun& run) {
  // All tensors of a bucket have asked for it, or none.
  const bool detects_overflow = run.request(0).overflow == TensorRequest::Overflow::kDetected;
  RONDA_RETURN_IF_ERROR(PrepareSegments(run));
  if (detects_overflow) RONDA_RETURN_IF_ERROR(plane_->PrepareOverflow(run.size()));
  RONDA_RETURN_IF_ERROR(Reduce(run));
  if (IsVetoed(run.info)) {
    staged_.clear();
    return absl::OkStatus();
  }
  if (detects_overflow) RONDA_RETURN_IF_ERROR(DetectOverflow(run));
  for (const Staged& staged : staged_) {
    RONDA_RETURN_IF_ERROR(plane_->Copy(staged.output, staged.data.get(), staged.bytes));
  }
  staged_.clear();
  return absl::OkStatus();
}

absl::Status Reductions::PrepareSegments(const BucketRun& run) {
  segments_.clear();
  for (size_t i = 0; i < run.size(); ++i) {
    Segment& segment = segments_.emplace_back();
    segment.count = static_cast<size_t>(ElementCount(run.request(i).shape));
    if (run.takes_part()) RONDA_RETURN_IF_ERROR(PrepareOwnSegment(run, i, &segment));
  }
  return absl::OkStatus();
}

absl::Status Reductions::PrepareOwnSegment(const BucketRun& run, size_t i, Segment* segment) {
  const Submission& submission = run.submission(i);
  const TensorRequest& request = run.request(i);
  segment->input = submission.input;
  segment->output = submission.output;
  if (submission.error_feedback == Submission::ErrorFeedback::kOn && IsLossy(request.wire, request.dtype)) {
    RONDA_ASSIGN_OR_RETURN(segment->residual, feedback_.Residual(request.key(), segment->count));
  }
  return request.op == OpType::kAllreduce ? absl::OkStatus() : PreparePart(run, i, segment);
}

absl::Status Reductions::PreparePart(const BucketRun& run, size_t i, Segment* segment) {
  const Submission& submission = run.submission(i);
  const TensorRequest& request = run.request(i);
  if (request.op == OpType::kReduce) {
    if (run.PositionOf(request.root) != *run.position) return absl::OkStatus();
    segment->part_count = segment->count;
    if (submission.output != submission.input) return absl::OkStatus();
    const size_t bytes = TensorBytes(request);
    RONDA_ASSIGN_OR_RETURN(auto data, plane_->Allocate(request, bytes));
    segment->output = data.get();
    staged_.push_back({.data = std::move(data), .output = submission.output, .bytes = bytes});
    return absl::OkStatus();
  }
  const RowRange rows = EvenSplit(request.shape.front(), run.participants(), *run.position);
  const size_t row = RowElements(request);
  segment->part_begin = static_cast<size_t>(rows.begin) * row;
  segment->part_count = static_cast<size_t>(rows.count) * row;
  OperationResult& result = run.results[i];
  RONDA_ASSIGN_OR_RETURN(result.data, plane_->Allocate(request, segment->part_count * SizeOf(request.dtype)));
  result.first_dims = {rows.count};
  segment->output = result.data.get();
  return absl::OkStatus();
}

absl::Status Reductions::Reduce(const BucketRun& run) {
  const TensorRequest& kind = run.request(0);
  const bool averages = kind.reduction == Reduction::kAverage;
  const ReduceCall call = {.info = run.info,
                           .segments = segments_,
                           .dtype = kind.dtype,
                           .wire = kind.wire,
                           .op = KernelOp(kind.reduction),
                           .prescale = {.multiplier = kind.prescale},
                           .postscale = {.multiplier = kind.postscale, .divisor = averages ? run.averaged_over() : 1},
                           .delivery = DeliveryOf(kind.op)};
  return kind.reduction == Reduction::kAdasum ? Adasum(&plane_->communicator(), &plane_->adasum_ops(), call)
                                              : plane_->communicator().Reduce(call);
}

absl::Status Reductions::DetectOverflow(const BucketRun& run) {
  const TensorRequest& kind = run.request(0);
  const bool is_everywhere = kind.op == OpType::kAllreduce;
  parts_.assign(run.size(), {});
  for (size_t i = 0; i < run.size() && run.takes_part(); ++i) {
    const Segment& segment = segments_[i];
    parts_[i] = {.data = segment.output, .count = is_everywhere ? segment.count : segment.part_count};
  }
  RONDA_ASSIGN_OR_RETURN(uint8_t* const flags, plane_->FindNonFinite(parts_, kind.dtype));
  if (!is_everywhere) RONDA_RETURN_IF_ERROR(VoteOnOverflow(run, flags));
  return plane_->DeliverOverflow(flags, run.results);
}

// A rank that has vetoed a bucket whose votes are still open has no tensors in it, but is one of the group all the
// same.
absl::Status Reductions::VoteOnOverflow(const BucketRun& run, uint8_t* flags) {
  Segment segment = {.count = run.size()};
  const bool is_member = run.takes_part() || run.info.ballot != nullptr;
  if (is_member) segment.input = segment.output = flags;
  CallInfo info = run.info;
  info.ballot = nullptr;  // the data has taken it along
  return plane_->communicator().Reduce(
      {.info = info, .segments = {&segment, 1}, .dtype = DType::kUint8, .op = ReduceOp::kMax});
}

}  // namespace ronda
