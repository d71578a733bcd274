// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: lanes, which run operations on GPUs in the order of the calls.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/session.h"
#include "runtime/base/status_macros.h"
#include "runtime/engine/device/caller_lane.h"
#include "runtime/engine/device/lane_exchange.h"
#include "runtime/engine/submission.h"

namespace ronda {
namespace {

template <typename... Words>
absl::Status Invalid(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat("ronda_lane_exchange_async: ", words...));
}

// Returns nullopt if `op` matches no enumerator.
std::optional<OpType> OpOfExchange(int op) {
  constexpr OpType kOps[] = {OpType::kAlltoall, OpType::kGather, OpType::kScatter};
  if (op < 0 || op >= static_cast<int>(std::size(kOps))) return std::nullopt;
  return kOps[op];
}

absl::StatusOr<std::vector<DirectPart>> PartsOf(absl::string_view what, const ronda_lane_part* parts, int count) {
  if (count < 0 || (count > 0 && parts == nullptr)) {
    return Invalid("part_count is ", count, ": pass that many parts in ", what);
  }
  std::vector<DirectPart> copies;
  for (int i = 0; i < count; ++i) {
    if (parts[i].count < 0) return Invalid(what, "[", i, "].count is ", parts[i].count, ": it must not be negative");
    copies.push_back({.data = parts[i].data, .count = static_cast<size_t>(parts[i].count)});
  }
  return copies;
}

// Converts the caller's arguments. The process set and the limits go into `*submission`.
absl::StatusOr<LaneExchange> ToExchange(const ronda_lane_exchange_args& args, const Caller& caller,
                                        Submission* submission) {
  const std::optional<OpType> op = OpOfExchange(RawValue(args.op));
  if (!op.has_value()) return Invalid("op ", RawValue(args.op), " is not one of ronda_lane_exchange, 0 to 2");
  const ronda_tensor tensor = {.name = nullptr, .dtype = args.dtype, .ndim = 0, .shape = nullptr};
  RONDA_RETURN_IF_ERROR(FromTensor(*op, tensor, submission));
  RONDA_RETURN_IF_ERROR(SetCall(args.call, caller, submission));
  if (submission->request.memory == Memory::kHost) {
    return Invalid("call.memory is not RONDA_MEMORY_CUDA: a lane has only the memory of GPUs");
  }
  LaneExchange exchange = {.op = *op,
                           .dtype = submission->request.dtype,
                           .root = args.root,
                           .stream = submission->stream,
                           .limits = submission->request.limits};
  RONDA_ASSIGN_OR_RETURN(exchange.sends, PartsOf("sends", args.sends, args.part_count));
  RONDA_ASSIGN_OR_RETURN(exchange.receives, PartsOf("receives", args.receives, args.part_count));
  return exchange;
}

absl::StatusOr<std::shared_ptr<Handle>> SubmitExchange(Session& session, const LaneExchange& exchange,
                                                       ProcessSetId process_set) {
  const std::shared_ptr<CallerLane> lane = session.runtime().lanes().Find(process_set);
  if (lane == nullptr) {
    return Invalid("process set ", process_set, " has no open lane: call ronda_lane_open() first");
  }
  return lane->Exchange(exchange);
}

}  // namespace
}  // namespace ronda

ronda_status ronda_lane_open(ronda_process_set process_set, const void* buffer, int* open) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (open == nullptr) return ronda::NullArgument("ronda_lane_open", "open");
    const absl::StatusOr<bool> is_open = session.runtime().OpenLane(process_set, buffer, session.caller().limits);
    if (is_open.ok()) *open = *is_open ? 1 : 0;
    const bool is_about_arguments = absl::IsInvalidArgument(is_open.status());
    return ronda::Failure(is_open.status(),
                          is_about_arguments ? ronda::Answer::kSubmission : ronda::Answer::kCompletion);
  });
}

ronda_status ronda_lane_close(ronda_process_set process_set) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    const std::shared_ptr<ronda::CallerLane> lane = session.runtime().lanes().Remove(process_set);
    if (lane != nullptr) lane->Drain();
    return {};
  });
}

ronda_status ronda_lane_retire(ronda_process_set process_set) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    session.runtime().lanes().Retire(process_set);
    return {};
  });
}

ronda_status ronda_lane_reduces(ronda_process_set process_set, ronda_dtype dtype, ronda_reduce_op op, double factor,
                                int* reduces) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (reduces == nullptr) return ronda::NullArgument("ronda_lane_reduces", "reduces");
    ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
    args.tensor.dtype = dtype;
    args.op = op;
    args.prescale = factor;
    ronda::Submission submission;
    const absl::Status checked = ronda::ToSubmission(&args, session.caller(), &submission);
    if (!checked.ok()) return ronda::Failure(checked, ronda::Answer::kSubmission);
    const std::shared_ptr<ronda::CallerLane> lane = session.runtime().lanes().Find(process_set);
    *reduces = lane != nullptr && lane->Reduces(submission.request) ? 1 : 0;
    return {};
  });
}

ronda_status ronda_lane_refuse(ronda_process_set process_set, const char* message) {
  constexpr char kFunction[] = "ronda_lane_refuse";
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (message == nullptr) return ronda::NullText(kFunction, "message");
    const std::shared_ptr<ronda::CallerLane> lane = session.runtime().lanes().Find(process_set);
    if (lane == nullptr) {
      return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(kFunction, ": process set ", process_set,
                                                         " has no open lane: call ronda_lane_open() first")};
    }
    lane->Refuse(message);
    return {};
  });
}

ronda_status ronda_lane_exchange_async(const ronda_lane_exchange_args* args, ronda_handle* handle) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    if (handle == nullptr) return ronda::NullArgument("ronda_lane_exchange_async", "handle");
    ronda::HandleTable& handles = ronda::globals().handles;
    const auto copy = ronda::CopySized(args, "ronda_lane_exchange_args");
    if (!copy.ok()) return ronda::Failure(copy.status(), ronda::Answer::kSubmission);
    ronda::Submission submission;
    const auto exchange = ronda::ToExchange(*copy, session.caller(), &submission);
    if (!exchange.ok()) return ronda::Failure(exchange.status(), ronda::Answer::kSubmission);
    handles.Reserve(1);  // a call that has been made cannot be taken back
    absl::Cleanup unreserve = [&] { handles.Unreserve(1); };
    auto submitted = ronda::SubmitExchange(session, *exchange, submission.request.process_set);
    if (!submitted.ok()) return ronda::Failure(submitted.status(), ronda::Answer::kSubmission);
    std::move(unreserve).Cancel();
    *handle = handles.Add(ronda::Operation(*std::move(submitted), exchange->op));
    return {};
  });
}
