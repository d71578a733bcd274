#include "runtime/engine/reductions.h"

#include <cstring>
#include <utility>

#include "kernels/cpu/non_finite.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/adasum.h"

namespace ronda {
namespace {

ReduceCall::Delivery DeliveryOf(OpType op) {
  return op == OpType::kAllreduce ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts;
}

}  // namespace

absl::Status Reductions::Run(const BucketRun& run) {
  RONDA_RETURN_IF_ERROR(PrepareSegments(run));
  RONDA_RETURN_IF_ERROR(Reduce(run));
  if (IsVetoed(run.info)) {
    staged_.clear();
    return absl::OkStatus();
  }
  // All tensors of a bucket have asked for it, or none.
  if (run.request(0).overflow == TensorRequest::Overflow::kDetected) RONDA_RETURN_IF_ERROR(DetectOverflow(run));
  for (const Staged& staged : staged_) {
    // A tensor without elements may have no buffer.
    if (staged.bytes > 0) std::memcpy(staged.output, staged.data.get(), staged.bytes);
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
    RONDA_ASSIGN_OR_RETURN(auto data, AllocateResult(request, bytes));
    segment->output = data.get();
    staged_.push_back({.data = std::move(data), .output = submission.output, .bytes = bytes});
    return absl::OkStatus();
  }
  const RowRange rows = EvenSplit(request.shape.front(), run.participants(), *run.position);
  const size_t row = RowElements(request);
  segment->part_begin = static_cast<size_t>(rows.begin) * row;
  segment->part_count = static_cast<size_t>(rows.count) * row;
  OperationResult& result = run.results[i];
  RONDA_ASSIGN_OR_RETURN(result.data, AllocateResult(request, segment->part_count * SizeOf(request.dtype)));
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
  return kind.reduction == Reduction::kAdasum ? Adasum(communicator_, call) : communicator_->Reduce(call);
}

absl::Status Reductions::DetectOverflow(const BucketRun& run) {
  const TensorRequest& kind = run.request(0);
  non_finite_.assign(run.size(), 0);
  for (size_t i = 0; i < run.size() && run.takes_part(); ++i) {
    const Segment& segment = segments_[i];
    const size_t count = kind.op == OpType::kAllreduce ? segment.count : segment.part_count;
    if (count > 0 && kernels::HasNonFinite(segment.output, kind.dtype, count)) non_finite_[i] = 1;
  }
  if (kind.op != OpType::kAllreduce) RONDA_RETURN_IF_ERROR(VoteOnOverflow(run));
  for (size_t i = 0; i < run.results.size(); ++i) {
    if (non_finite_[i] != 0) run.results[i].overflow = OperationResult::Overflow::kFound;
  }
  return absl::OkStatus();
}

absl::Status Reductions::VoteOnOverflow(const BucketRun& run) {
  Segment flags = {.count = non_finite_.size()};
  if (run.takes_part()) flags.input = flags.output = non_finite_.data();
  CallInfo info = run.info;
  info.ballot = nullptr;  // the data has taken it along
  return communicator_->Reduce({.info = info, .segments = {&flags, 1}, .dtype = DType::kUint8, .op = ReduceOp::kMax});
}

}  // namespace ronda
