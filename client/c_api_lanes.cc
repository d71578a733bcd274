// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: lanes, which carry out operations on GPUs in the order of the calls.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/session.h"
#include "runtime/engine/device/caller_lane.h"
#include "runtime/engine/submission.h"

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
