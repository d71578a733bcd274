#include "runtime/engine/exchanges.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The same call over all ranks of the job.
CallInfo WholeJob(const CallInfo& info) {
  CallInfo whole = info;
  whole.group = nullptr;
  return whole;
}

absl::Status TooLarge(const TensorRequest& request) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the result of ", Name(request.op), " '", request.name, "' is too large"));
}

// Bytes of `rows` rows each, and in all; the numbers are other ranks'.
// Errors: RESOURCE_EXHAUSTED if 64 bits cannot count them; INTERNAL if one is negative.
struct Extent {
  std::vector<size_t> bytes;
  size_t total = 0;
};
absl::StatusOr<Extent> ExtentOf(const TensorRequest& request, absl::Span<const int64_t> rows) {
  Extent extent;
  const size_t row_bytes = RowBytes(request);
  for (int64_t count : rows) {
    if (count < 0) return absl::InternalError(absl::StrCat("tensor '", request.name, "': ", count, " rows"));
    size_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(count), row_bytes, &bytes) ||
        __builtin_add_overflow(extent.total, bytes, &extent.total)) {
      return TooLarge(request);
    }
    extent.bytes.push_back(bytes);
  }
  return extent;
}

// What `submission` says about how its rows are split among `members`.
std::vector<int64_t> SplitsOf(const Submission& submission, int members) {
  if (!submission.splits.empty()) return submission.splits;
  std::vector<int64_t> splits;
  for (int position = 0; position < members; ++position) {
    splits.push_back(EvenSplit(submission.request.shape.front(), members, position).count);
  }
  return splits;
}

}  // namespace

absl::Status Exchanges::Run(const BucketRun& run) {
  for (size_t i = 0; i < run.size(); ++i) RONDA_RETURN_IF_ERROR(RunOne(run, i));
  return absl::OkStatus();
}

absl::Status Exchanges::RunOne(const BucketRun& run, size_t i) {
  switch (run.request(i).op) {
    case OpType::kBroadcast:
      return Broadcast(run, i);
    case OpType::kAllgather:
    case OpType::kGather:
      return Gather(run, i);
    case OpType::kScatter:
      return Scatter(run, i);
    case OpType::kAlltoall:
      return Alltoall(run, i);
    case OpType::kSendRecv:
      return SendRecv(run, i);
    default:
      return plane_->communicator().Barrier(run.info);
  }
}

absl::Status Exchanges::Broadcast(const BucketRun& run, size_t i) {
  const TensorRequest& request = run.request(i);
  return plane_->communicator().Broadcast({.info = run.info,
                                           .data = run.takes_part() ? run.submission(i).output : nullptr,
                                           .bytes = TensorBytes(request),
                                           .root = run.PositionOf(request.root)});
}

absl::Status Exchanges::Gather(const BucketRun& run, size_t i) {
  const TensorRequest& request = run.request(i);
  const Group& members = *run.bucket.members;
  const std::vector<int64_t>& first_dims = run.bucket.responses[i]->first_dims;  // by member
  std::vector<int64_t> rows;                                                     // by participant
  for (RankId rank : run.bucket.participants->ranks()) rows.push_back(first_dims[*members.PositionOf(rank)]);
  RONDA_ASSIGN_OR_RETURN(const Extent extent, ExtentOf(request, rows));
  AllgatherCall call = {.info = run.info, .bytes_per_rank = extent.bytes};
  if (request.op == OpType::kGather) call.receiver = run.PositionOf(request.root);
  if (run.takes_part()) {
    call.input = run.submission(i).input;
    run.results[i].number = run.averaged_over();
    if (!call.receiver || call.receiver == run.position) {
      RONDA_ASSIGN_OR_RETURN(run.results[i].data, plane_->Allocate(request, extent.total));
      run.results[i].first_dims = first_dims;
      call.output = run.results[i].data.get();
    }
  }
  return plane_->communicator().Allgather(call);
}

absl::Status Exchanges::Scatter(const BucketRun& run, size_t i) {
  const TensorRequest& request = run.request(i);
  const size_t members = static_cast<size_t>(run.participants());
  const size_t root = static_cast<size_t>(run.PositionOf(request.root));
  std::vector<int64_t> of_root(members);
  if (run.takes_part() && static_cast<size_t>(*run.position) == root) {
    of_root = SplitsOf(run.submission(i), run.participants());
  }
  RONDA_RETURN_IF_ERROR(host_->Broadcast(
      {.info = WholeJob(run.info), .data = of_root.data(), .bytes = members * sizeof(int64_t), .root = request.root}));
  std::vector<int64_t> splits(members * members);
  std::copy(of_root.begin(), of_root.end(), splits.begin() + static_cast<std::ptrdiff_t>(root * members));
  RONDA_RETURN_IF_ERROR(MoveRows(run, i, splits));
  if (run.takes_part()) run.results[i].first_dims = {of_root[static_cast<size_t>(*run.position)]};
  return absl::OkStatus();
}

absl::Status Exchanges::Alltoall(const BucketRun& run, size_t i) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<int64_t> splits, ShareSplits(run, i));
  RONDA_RETURN_IF_ERROR(MoveRows(run, i, splits));
  if (!run.takes_part()) return absl::OkStatus();
  const int members = run.participants();
  for (int sender = 0; sender < members; ++sender) {
    run.results[i].first_dims.push_back(splits[sender * members + *run.position]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Exchanges::ShareSplits(const BucketRun& run, size_t i) {
  const size_t members = static_cast<size_t>(run.participants());
  std::vector<int64_t> own;
  if (run.takes_part()) own = SplitsOf(run.submission(i), run.participants());
  std::vector<size_t> bytes_per_rank(static_cast<size_t>(host_->size()), 0);
  for (RankId rank : run.bucket.participants->ranks()) bytes_per_rank[rank] = members * sizeof(int64_t);
  std::vector<int64_t> splits(members * members);
  RONDA_RETURN_IF_ERROR(host_->Allgather(
      {.info = WholeJob(run.info), .input = own.data(), .output = splits.data(), .bytes_per_rank = bytes_per_rank}));
  return splits;
}

absl::Status Exchanges::MoveRows(const BucketRun& run, size_t i, const std::vector<int64_t>& splits) {
  const TensorRequest& request = run.request(i);
  RONDA_ASSIGN_OR_RETURN(const Extent extent, ExtentOf(request, splits));
  AlltoallCall call = {.info = run.info, .bytes = extent.bytes};
  if (run.takes_part()) {
    size_t received = 0;
    for (size_t from = static_cast<size_t>(*run.position); from < extent.bytes.size();
         from += static_cast<size_t>(run.participants())) {
      received += extent.bytes[from];
    }
    RONDA_ASSIGN_OR_RETURN(run.results[i].data, plane_->Allocate(request, received));
    call.input = run.submission(i).input;
    call.output = run.results[i].data.get();
  }
  return plane_->communicator().Alltoall(call);
}

absl::Status Exchanges::SendRecv(const BucketRun& run, size_t i) {
  const TensorRequest& request = run.request(i);
  const int sender = run.PositionOf(request.root);
  const int receiver = run.PositionOf(request.receiver);
  std::vector<size_t> bytes(4, 0);  // the two participants, squared
  bytes[static_cast<size_t>(sender * 2 + receiver)] = TensorBytes(request);
  AlltoallCall call = {.info = run.info, .bytes = bytes};
  if (run.position == sender) call.input = run.submission(i).input;
  if (run.position == receiver) call.output = run.submission(i).output;
  return plane_->communicator().Alltoall(call);
}

}  // namespace ronda
