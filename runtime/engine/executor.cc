#include "runtime/engine/executor.h"

#include <new>
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

// Bytes of the part of an allgather that one unit of the first dimension stands for.
size_t RowBytes(const TensorRequest& request) {
  size_t bytes = SizeOf(request.dtype);
  for (size_t i = 1; i < request.shape.size(); ++i) bytes *= static_cast<size_t>(request.shape[i]);
  return bytes;
}

}  // namespace

absl::Status Executor::Execute(const AgreedBucket& bucket) {
  const Response& first = *bucket.responses.front();
  switch (first.request.op) {
    case OpType::kAllreduce:
      return Allreduce(bucket);
    case OpType::kBroadcast:
      return Broadcast(first);
    case OpType::kAllgather:
      return Allgather(first);
    case OpType::kBarrier:
      return Barrier(first);
    default:
      break;
  }
  return absl::InternalError(absl::StrCat("no such operation: ", static_cast<int>(first.request.op)));
}

absl::StatusOr<const Submission*> Executor::Find(const Response& response) const {
  const TensorEntry* entry = queue_->Find(response.request.name);
  if (entry == nullptr) {
    return absl::InternalError(absl::StrCat("the coordinator rank orders the ", Name(response.request.op),
                                            " of tensor '", response.request.name,
                                            "', which was not submitted on this rank"));
  }
  return &entry->submission;
}

absl::Status Executor::Allreduce(const AgreedBucket& bucket) {
  segments_.clear();
  for (const auto& response : bucket.responses) {
    RONDA_ASSIGN_OR_RETURN(const Submission* submission, Find(*response));
    segments_.push_back(
        {submission->input, submission->output, static_cast<size_t>(ElementCount(response->request.shape))});
  }
  const TensorRequest& kind = bucket.responses.front()->request;
  const bool averages = kind.reduction == Reduction::kAverage;
  const std::string label = Label(bucket);
  RONDA_RETURN_IF_ERROR(communicator_->Reduce(
      {.info = {.label = label, .op = OpType::kAllreduce},
       .segments = segments_,
       .dtype = kind.dtype,
       .wire = kind.wire,
       .op = KernelOp(kind.reduction),
       .prescale = {.multiplier = kind.prescale},
       .postscale = {.multiplier = kind.postscale, .divisor = averages ? communicator_->size() : 1}}));
  for (const auto& response : bucket.responses) queue_->Complete(response->request.name, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Executor::Broadcast(const Response& response) {
  RONDA_ASSIGN_OR_RETURN(const Submission* submission, Find(response));
  const TensorRequest& request = response.request;
  RONDA_RETURN_IF_ERROR(
      communicator_->Broadcast({.info = {.label = request.name, .op = request.op},
                                .data = submission->output,
                                .bytes = static_cast<size_t>(ElementCount(request.shape)) * SizeOf(request.dtype),
                                .root = request.root}));
  queue_->Complete(request.name, absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Executor::Allgather(const Response& response) {
  RONDA_ASSIGN_OR_RETURN(const Submission* submission, Find(response));
  const TensorRequest& request = response.request;
  std::vector<size_t> bytes_per_rank;
  size_t total = 0;
  for (int64_t dim : response.first_dims) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<size_t>(dim), RowBytes(request), &bytes) ||
        __builtin_add_overflow(total, bytes, &total)) {
      return absl::ResourceExhaustedError(absl::StrCat("the result of allgather '", request.name, "' is too large"));
    }
    bytes_per_rank.push_back(bytes);
  }
  OperationResult gathered{std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[total]), response.first_dims};
  if (gathered.data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", total, " bytes that allgather '", request.name, "' returns"));
  }
  RONDA_RETURN_IF_ERROR(communicator_->Allgather({.info = {.label = request.name, .op = request.op},
                                                  .input = submission->input,
                                                  .output = gathered.data.get(),
                                                  .bytes_per_rank = bytes_per_rank}));
  queue_->Complete(request.name, std::move(gathered));
  return absl::OkStatus();
}

absl::Status Executor::Barrier(const Response& response) {
  RONDA_RETURN_IF_ERROR(Find(response).status());
  RONDA_RETURN_IF_ERROR(communicator_->Barrier({.label = response.request.name, .op = OpType::kBarrier}));
  queue_->Complete(response.request.name, absl::OkStatus());
  return absl::OkStatus();
}

}  // namespace ronda
