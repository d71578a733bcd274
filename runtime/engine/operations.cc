// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/operations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/adasum.h"

namespace ronda {
namespace {

ReduceCall::Delivery DeliveryOf(OpType op) {
  return op == OpType::kAllreduce ? ReduceCall::Delivery::kAll : ReduceCall::Delivery::kParts;
}

// Returns a copy of `info` for a call to all ranks of the job.
CallInfo WholeJob(const CallInfo& info) {
  CallInfo whole = info;
  whole.group = nullptr;
  return whole;
}

absl::Status TooLarge(const TensorRequest& request) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the result of ", Name(request.op), " '", request.name, "' is too large"));
}

// Converts the row counts in `rows` to bytes, stores them in `bytes`, and returns their sum. The row counts come from
// other ranks, so the function checks them. Errors: RESOURCE_EXHAUSTED if a number of bytes does not fit into 64 bits;
// INTERNAL if a row count is negative.
absl::StatusOr<size_t> BytesOf(const TensorRequest& request, absl::Span<const int64_t> rows,
                               std::vector<size_t>* bytes) {
  bytes->clear();
  size_t total = 0;
  const size_t row_bytes = RowBytes(request);
  for (int64_t count : rows) {
    if (count < 0) return absl::InternalError(absl::StrCat("tensor '", request.name, "': ", count, " rows"));
    size_t of_rows = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(count), row_bytes, &of_rows) ||
        __builtin_add_overflow(total, of_rows, &total)) {
      return TooLarge(request);
    }
    bytes->push_back(of_rows);
  }
  return total;
}

// Sets `splits` to the number of rows of `submission` that each of `members` gets.
void SplitRows(const Submission& submission, int members, std::vector<int64_t>* splits) {
  *splits = submission.splits;
  if (!splits->empty()) return;
  for (int position = 0; position < members; ++position) {
    splits->push_back(EvenSplit(submission.request.shape.front(), members, position).count);
  }
}

// For a reduce or a reducescatter, returns the part of tensor `i`'s result that the participant at `position` receives.
PartRange PartOf(const BucketRun& run, size_t i, int position) {
  const TensorRequest& request = run.request(i);
  if (request.op == OpType::kReduce) {
    const bool is_root = run.PositionOf(request.root) == position;
    return {.begin = 0, .count = is_root ? static_cast<size_t>(ElementCount(request.shape)) : 0};
  }
  const RowRange rows = EvenSplit(request.shape.front(), run.participants(), position);
  const size_t row = RowElements(request);
  return {.begin = static_cast<size_t>(rows.begin) * row, .count = static_cast<size_t>(rows.count) * row};
}

// Describes how many bytes each participant sends, for example " (4 of rank 0, 3 of rank 2)". The text is empty if
// `parts` is empty.
std::string DescribeParts(absl::Span<const size_t> parts, const Group& participants) {
  constexpr size_t kNamed = 8;
  if (parts.empty()) return "";
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), kNamed); ++i) {
    absl::StrAppend(&text, i == 0 ? " (" : ", ", parts[i], " of rank ", participants[static_cast<int>(i)]);
  }
  return absl::StrCat(text, parts.size() > kNamed ? ", ...)" : ")");
}

// Returns memory for a result that consists of rows and has `bytes` bytes. It is the caller's memory if that is large
// enough, and otherwise belongs to the result. If the caller's memory is too small, this rank still takes part, because
// the other ranks need it, but the operation ends with an error on this rank only. For this error, `parts` says how
// many bytes each participant sends, if the result has parts.
absl::StatusOr<void*> PlaceResult(DataPlane& plane, const BucketRun& run, size_t i, size_t bytes,
                                  absl::Span<const size_t> parts = {}) {
  const Submission& submission = run.submission(i);
  OperationResult* const result = &run.results[i];
  if (submission.output != nullptr && bytes <= submission.output_bytes) {
    result->callers = submission.output;
    return submission.output;
  }
  const TensorRequest& request = submission.request;
  if (submission.output != nullptr) {
    result->status = absl::OutOfRangeError(
        absl::StrCat("tensor '", request.name, "': the result of this ", Name(request.op), " has ", bytes, " bytes",
                     DescribeParts(parts, *run.bucket.participants), ", but output_bytes is ", submission.output_bytes,
                     ": pass room for all of it, or no output and ask the handle for Ronda's"));
  }
  RONDA_ASSIGN_OR_RETURN(result->data, plane.Allocate(request, bytes));
  return result->data.get();
}

}  // namespace

size_t RowElements(const TensorRequest& request) {
  size_t elements = 1;
  for (size_t i = 1; i < request.shape.size(); ++i) elements *= static_cast<size_t>(request.shape[i]);
  return elements;
}

size_t RowBytes(const TensorRequest& request) { return RowElements(request) * SizeOf(request.dtype); }

RowRange EvenSplit(int64_t rows, int members, int position) {
  const int64_t share = rows / members;
  const int64_t longer = rows % members;
  return {.begin = position * share + std::min<int64_t>(position, longer),
          .count = share + (position < longer ? 1 : 0)};
}

absl::StatusOr<float*> ErrorFeedback::Residual(TensorKeyView key, size_t count) {
  auto it = entries_.find(key);
  if (it == entries_.end()) it = entries_.try_emplace(TensorKey(key)).first;
  Entry& entry = it->second;
  if (entry.values == nullptr || entry.count != count) {
    // The old memory is freed first, because there may not be enough for both.
    entry.values = ResultData();
    RONDA_ASSIGN_OR_RETURN(entry.values, allocate_(key.name, count * sizeof(float)));
    entry.count = count;
  }
  return reinterpret_cast<float*>(entry.values.get());
}

void ErrorFeedback::Drop(ProcessSetId process_set) {
  absl::erase_if(entries_, [&](const auto& entry) { return entry.first.process_set == process_set; });
}

absl::Status Reductions::Run(const BucketRun& run) {
  // Either all tensors of a bucket request overflow detection, or none does.
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
  if (submission.error_feedback == Submission::ErrorFeedback::kOn && IsNarrowed(request.dtype, request.wire)) {
    RONDA_ASSIGN_OR_RETURN(segment->residual, feedback_.Residual(request.key(), segment->count));
  }
  return request.op == OpType::kAllreduce ? absl::OkStatus() : PreparePart(run, i, segment);
}

absl::Status Reductions::PreparePart(const BucketRun& run, size_t i, Segment* segment) {
  const Submission& submission = run.submission(i);
  const TensorRequest& request = run.request(i);
  if (request.op == OpType::kReduce) {
    segment->part_count = PartOf(run, i, *run.position).count;
    if (run.PositionOf(request.root) != *run.position) return absl::OkStatus();
    if (submission.output != submission.input) return absl::OkStatus();
    const size_t bytes = TensorBytes(request);
    RONDA_ASSIGN_OR_RETURN(auto data, plane_->Allocate(request, bytes));
    segment->output = data.get();
    staged_.push_back({.data = std::move(data), .output = submission.output, .bytes = bytes});
    return absl::OkStatus();
  }
  const PartRange part = PartOf(run, i, *run.position);
  segment->part_begin = part.begin;
  segment->part_count = part.count;
  OperationResult& result = run.results[i];
  RONDA_ASSIGN_OR_RETURN(segment->output, PlaceResult(*plane_, run, i, segment->part_count * SizeOf(request.dtype)));
  result.first_dims = {EvenSplit(request.shape.front(), run.participants(), *run.position).count};
  return absl::OkStatus();
}

absl::Status Reductions::Reduce(const BucketRun& run) {
  const TensorRequest& kind = run.request(0);
  const bool averages = kind.reduction == Reduction::kAverage;
  const auto part_of = [&run](size_t segment, int position) { return PartOf(run, segment, position); };
  const ReduceCall::PartOf known_parts = part_of;
  const ReduceCall call = {.info = run.info,
                           .segments = segments_,
                           .dtype = kind.dtype,
                           .wire = kind.wire,
                           .op = TraitsOf(kind.reduction).kernel,
                           .prescale = {.multiplier = kind.prescale},
                           .postscale = {.multiplier = kind.postscale, .divisor = averages ? run.averaged_over() : 1},
                           .delivery = DeliveryOf(kind.op),
                           .part_of = kind.op == OpType::kAllreduce ? nullptr : &known_parts,
                           .layout = run.layout};
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

absl::Status Reductions::VoteOnOverflow(const BucketRun& run, uint8_t* flags) {
  Segment segment = {.count = run.size()};
  if (run.takes_part()) segment.input = segment.output = flags;
  CallInfo info = run.info;
  info.ballot = nullptr;  // it travelled with the data
  return plane_->communicator().Reduce(
      {.info = info, .segments = {&segment, 1}, .dtype = DType::kUint8, .op = ReduceOp::kMax});
}

namespace {

// The exchange of one tensor of a bucket. The exchange owns nothing.
class Exchange {
 public:
  // The tensors of a bucket share all arguments except `i`.
  Exchange(DataPlane* plane, Communicator* host, Exchanges::Scratch* scratch, const BucketRun& run, size_t i)
      : plane_(*plane), host_(*host), scratch_(*scratch), run_(run), i_(i), request_(run.request(i)) {}

  absl::Status Run();

 private:
  absl::Status Broadcast();
  absl::Status Gather();
  absl::Status Scatter();
  absl::Status Alltoall();
  absl::Status SendRecv();

  // Sends each participant the number of rows in scratch_.splits. Stores the received rows in the result, but not the
  // first dimensions.
  absl::Status MoveRows();
  // Sets scratch_.splits to the number of rows that each participant sends to each other participant, and to itself.
  absl::Status ShareSplits();

  DataPlane& plane_;
  Communicator& host_;
  Exchanges::Scratch& scratch_;
  const BucketRun& run_;
  const size_t i_;
  const TensorRequest& request_;
};

absl::Status Exchange::Run() {
  switch (request_.op) {
    case OpType::kBroadcast:
      return Broadcast();
    case OpType::kAllgather:
    case OpType::kGather:
      return Gather();
    case OpType::kScatter:
      return Scatter();
    case OpType::kAlltoall:
      return Alltoall();
    case OpType::kSendRecv:
      return SendRecv();
    default:
      return plane_.communicator().Barrier(run_.info);
  }
}

absl::Status Exchange::Broadcast() {
  return plane_.communicator().Broadcast({.info = run_.info,
                                          .data = run_.takes_part() ? run_.submission(i_).output : nullptr,
                                          .bytes = TensorBytes(request_),
                                          .root = run_.PositionOf(request_.root)});
}

absl::Status Exchange::Gather() {
  const Group& members = *run_.bucket.members;
  const std::vector<int64_t>& first_dims = run_.bucket.responses[i_]->first_dims;  // by member
  std::vector<int64_t>& rows = scratch_.rows;                                      // by participant
  rows.clear();
  for (RankId rank : run_.bucket.participants->ranks()) rows.push_back(first_dims[*members.PositionOf(rank)]);
  RONDA_ASSIGN_OR_RETURN(const size_t total, BytesOf(request_, rows, &scratch_.bytes));
  AllgatherCall call = {.info = run_.info, .bytes_per_rank = scratch_.bytes};
  if (request_.op == OpType::kGather) call.receiver = run_.PositionOf(request_.root);
  if (run_.takes_part()) {
    const Submission& submission = run_.submission(i_);
    OperationResult& result = run_.results[i_];
    call.input = submission.input;
    result.number = run_.averaged_over();
    if (!call.receiver || call.receiver == run_.position) {
      RONDA_ASSIGN_OR_RETURN(call.output, PlaceResult(plane_, run_, i_, total, scratch_.bytes));
      result.first_dims.assign(first_dims.begin(), first_dims.end());
    }
  }
  return plane_.communicator().Allgather(call);
}

absl::Status Exchange::Scatter() {
  const size_t members = static_cast<size_t>(run_.participants());
  const size_t root = static_cast<size_t>(run_.PositionOf(request_.root));
  std::vector<int64_t>& of_root = scratch_.rows;
  of_root.assign(members, 0);
  if (run_.takes_part() && static_cast<size_t>(*run_.position) == root) {
    SplitRows(run_.submission(i_), run_.participants(), &of_root);
  }
  RONDA_RETURN_IF_ERROR(host_.Broadcast({.info = WholeJob(run_.info),
                                         .data = of_root.data(),
                                         .bytes = members * sizeof(int64_t),
                                         .root = request_.root}));
  std::vector<int64_t>& splits = scratch_.splits;
  splits.assign(members * members, 0);
  std::copy(of_root.begin(), of_root.end(), splits.begin() + static_cast<std::ptrdiff_t>(root * members));
  RONDA_RETURN_IF_ERROR(MoveRows());
  if (run_.takes_part()) run_.results[i_].first_dims = {of_root[static_cast<size_t>(*run_.position)]};
  return absl::OkStatus();
}

absl::Status Exchange::Alltoall() {
  RONDA_RETURN_IF_ERROR(ShareSplits());
  RONDA_RETURN_IF_ERROR(MoveRows());
  if (!run_.takes_part()) return absl::OkStatus();
  const int members = run_.participants();
  for (int sender = 0; sender < members; ++sender) {
    run_.results[i_].first_dims.push_back(scratch_.splits[static_cast<size_t>(sender * members + *run_.position)]);
  }
  return absl::OkStatus();
}

absl::Status Exchange::ShareSplits() {
  const size_t members = static_cast<size_t>(run_.participants());
  std::vector<int64_t>& own = scratch_.rows;
  if (run_.takes_part()) SplitRows(run_.submission(i_), run_.participants(), &own);
  scratch_.bytes.assign(static_cast<size_t>(host_.size()), 0);
  for (RankId rank : run_.bucket.participants->ranks()) {
    scratch_.bytes[static_cast<size_t>(rank)] = members * sizeof(int64_t);
  }
  scratch_.splits.resize(members * members);
  return host_.Allgather({.info = WholeJob(run_.info),
                          .input = own.data(),
                          .output = scratch_.splits.data(),
                          .bytes_per_rank = scratch_.bytes});
}

absl::Status Exchange::MoveRows() {
  std::vector<size_t>& bytes = scratch_.bytes;
  RONDA_RETURN_IF_ERROR(BytesOf(request_, scratch_.splits, &bytes).status());
  AlltoallCall call = {.info = run_.info, .bytes = bytes};
  if (run_.takes_part()) {
    size_t received = 0;
    scratch_.parts.clear();
    for (size_t from = static_cast<size_t>(*run_.position); from < bytes.size();
         from += static_cast<size_t>(run_.participants())) {
      received += bytes[from];
      scratch_.parts.push_back(bytes[from]);
    }
    call.input = run_.submission(i_).input;
    RONDA_ASSIGN_OR_RETURN(call.output, PlaceResult(plane_, run_, i_, received, scratch_.parts));
  }
  return plane_.communicator().Alltoall(call);
}

absl::Status Exchange::SendRecv() {
  const int sender = run_.PositionOf(request_.root);
  const int receiver = run_.PositionOf(request_.receiver);
  std::vector<size_t> bytes(4, 0);  // two participants: 2 x 2
  bytes[static_cast<size_t>(sender * 2 + receiver)] = TensorBytes(request_);
  AlltoallCall call = {.info = run_.info, .bytes = bytes};
  if (run_.position == sender) call.input = run_.submission(i_).input;
  if (run_.position == receiver) call.output = run_.submission(i_).output;
  if (run_.takes_part()) run_.results[i_].number = request_.root;
  return plane_.communicator().Alltoall(call);
}

}  // namespace

absl::Status Exchanges::Run(const BucketRun& run) {
  for (size_t i = 0; i < run.size(); ++i) RONDA_RETURN_IF_ERROR(Exchange(plane_, host_, &scratch_, run, i).Run());
  return absl::OkStatus();
}

}  // namespace ronda
