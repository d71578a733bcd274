// SPDX-License-Identifier: Apache-2.0

// The part of the C ABI for operations: calls that submit an operation and return a handle, and calls that wait for the
// operation.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/operation_lists.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Handles = std::vector<std::shared_ptr<Handle>>;

// Operations that have been submitted but whose handles the caller does not have yet. The constructor reserves room for
// `count` operations. The destructor waits for the operations: if memory is exhausted after their submission, the
// caller is told that nothing was submitted, and may free the buffers.
class Submitted {
 public:
  // `handles` must be empty, and is emptied by the destructor.
  Submitted(Handles* handles, size_t count) : handles_(*handles), room_(count) {
    handles_.reserve(count);
    globals().handles.Reserve(count);
  }
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;
  ~Submitted() {
    for (const std::shared_ptr<Handle>& handle : handles_) handle->Wait().IgnoreError();
    handles_.clear();
    if (room_ > 0) globals().handles.Unreserve(room_);
  }

  Handles& handles() { return handles_; }
  // Keeps the bytes that the operation sends alive until the operation has completed. Not needed if the caller owns the
  // bytes.
  void Keep(std::shared_ptr<const void> contribution) { contribution_ = std::move(contribution); }
  // Adds an operation to the handle table, in the reserved room, and returns its number.
  ronda_handle Number(Operation operation) {
    --room_;
    return globals().handles.Add(std::move(operation));
  }
  // Records that the caller now has the handles.
  void HandedOut() { handles_.clear(); }

 private:
  Handles& handles_;
  size_t room_;
  std::shared_ptr<const void> contribution_;
};

// Adds `count` operations, operation(0) to operation(count - 1), to the handle table, and writes their numbers to
// `handles`. If an exception is thrown, none of them is in the table.
template <typename OperationFn>
void HandOut(size_t count, const OperationFn& operation, Submitted& submitted, ronda_handle* handles) {
  size_t done = 0;
  try {
    for (; done < count; ++done) handles[done] = submitted.Number(operation(done));
  } catch (...) {
    while (done > 0) globals().handles.Remove(handles[--done]);
    throw;
  }
}

// Runs `submit`, and then `hand_out` on the submitted operations. `submit` must put its `count` operations into its
// second argument before it allocates anything.
template <typename SubmitFn, typename HandOutFn>
ronda_status Submit(const char* function, const ronda_handle* handles, size_t count, const SubmitFn& submit,
                    const HandOutFn& hand_out) {
  return CallWithSession([&](Session& session) -> Outcome {
    if (handles == nullptr) return NullArgument(function, "handle");
    Submitted submitted(&scratch().handles, count);
    const absl::Status status = submit(session, &submitted);
    if (!status.ok()) return Failure(status, Answer::kSubmission);
    hand_out(submitted);
    submitted.HandedOut();
    return {};
  });
}

// Like Submit(), for operations whose runtime result goes to the caller unchanged. `submit` may set `op`.
template <typename SubmitFn>
ronda_status SubmitAsItIs(const char* function, const OpType& op, ronda_handle* handles, size_t count,
                          const SubmitFn& submit) {
  return Submit(function, handles, count, submit, [&](Submitted& submitted) {
    HandOut(
        count, [&](size_t i) { return Operation(submitted.handles()[i], op); }, submitted, handles);
  });
}

// Submits a tensor and adds its handle to `handles`.
absl::Status SubmitTo(Session& session, Submission* submission, Handles* handles) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session.Submit(submission));
  handles->push_back(std::move(handle));
  return absl::OkStatus();
}

template <typename Args>
ronda_status SubmitOne(const char* function, const Args* args, ronda_handle* handle) {
  OpType op = OpType::kAllreduce;
  return SubmitAsItIs(function, op, handle, 1, [&](Session& session, Submitted* submitted) -> absl::Status {
    Submission& submission = scratch().submission;
    RONDA_RETURN_IF_ERROR(ToSubmission(args, session.caller(), &submission));
    op = submission.request.op;
    return SubmitTo(session, &submission, &submitted->handles());
  });
}

template <typename Args>
ronda_status SubmitGroup(const char* function, const Args* args, size_t count, const char* group,
                         ronda_handle* handles) {
  // An empty group has no handles, so `handles` may be null.
  if (count == 0) return CallWithSession([](Session&) { return Outcome(); });
  OpType op = OpType::kAllreduce;
  return SubmitAsItIs(function, op, handles, count, [&](Session& session, Submitted* submitted) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const auto submissions, ToGroup(args, count, group, session.caller(), &scratch().group));
    op = submissions.front().request.op;
    return session.runtime().SubmitAll(submissions, &submitted->handles());
  });
}

absl::StatusOr<std::shared_ptr<const ObjectBroadcast::Plan>> BroadcastObject(const ronda_object_args* args,
                                                                             Session& session, Submitted* submitted) {
  Submission object;
  RONDA_RETURN_IF_ERROR(ToSubmission(args, session.caller(), &object));
  object.request.function = TensorRequest::Function::kBroadcastObject;
  RONDA_ASSIGN_OR_RETURN(auto members, session.runtime().ProcessSet(object.request.process_set));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const ObjectBroadcast::Plan> plan,
                         ObjectBroadcast::Prepare(std::move(members), session.caller().rank, &object));
  submitted->Keep(plan);
  RONDA_RETURN_IF_ERROR(SubmitTo(session, &object, &submitted->handles()));
  return plan;
}

absl::Status AllgatherObject(const ronda_object_args* args, Session& session, Submitted* submitted) {
  Submission object;
  RONDA_RETURN_IF_ERROR(ToSubmission(args, session.caller(), &object));
  object.request.function = TensorRequest::Function::kAllgatherObject;
  object.request.root = 0;  // an allgather has none
  return SubmitTo(session, &object, &submitted->handles());
}

// How the gathered values become the result of a sparse allreduce.
struct SparseValues {
  bool averages = false;
  DType dtype = DType::kFloat32;
  int64_t row = 0;  // elements
};

// Submits the indices and the values.
absl::StatusOr<SparseValues> SparseAllreduce(const ronda_sparse_allreduce_args* args, Session& session,
                                             Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(SparseSubmissions sparse, ToSubmissions(args, session.caller()));
  const TensorRequest& request = sparse.values.request;
  Shape row = request.shape;
  if (!row.empty()) row.front() = 1;
  const SparseValues values = {.averages = request.reduction == Reduction::kAverage,
                               .dtype = request.dtype,
                               .row = static_cast<int64_t>(ElementCount(row))};
  const Submission submissions[] = {std::move(sparse.indices), std::move(sparse.values)};
  RONDA_RETURN_IF_ERROR(session.runtime().SubmitAll(submissions, &submitted->handles()));
  return values;
}

constexpr size_t kSparseOperations = 2;

void HandOutSparse(Submitted& submitted, const SparseValues& values, ronda_handle* handles) {
  const auto operation = [&](size_t i) {
    const std::shared_ptr<Handle>& handle = submitted.handles()[i];
    if (i == 0 || !values.averages) return Operation(handle, OpType::kAllgather);
    return SparseAverage::Of(handle, values.dtype, values.row);
  };
  HandOut(kSparseOperations, operation, submitted, handles);
}

absl::Status Barrier(ronda_process_set set, double timeout_s, Session& session, Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(Submission submission, BarrierSubmission(set, timeout_s, session.caller()));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session.SubmitNumbered(std::move(submission)));
  submitted->handles().push_back(std::move(handle));
  return absl::OkStatus();
}

absl::Status RemoveUnawaited(ronda_process_set id, Session& session, Submitted* submitted) {
  session.ForgetRemovedSets();
  const ProcessSetId by = session.runtime().RemoversOf(id);
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle,
                         session.SubmitNumbered(UnawaitedRemovalSubmission(id, by, session.caller())));
  submitted->handles().push_back(std::move(handle));
  return absl::OkStatus();
}

absl::Status Join(ronda_process_set set, const ronda_absent& absent, Session& session, Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(const Submission submission, JoinSubmission(set, absent));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session.SubmitJoin(submission));
  submitted->handles().push_back(std::move(handle));
  return absl::OkStatus();
}

ronda_status Refuse(ronda_process_set set, const char* name, const Channel* channel, const char* message) {
  return CallWithSession([&](Session& session) -> Outcome {
    absl::StatusOr<Submission> refusal = RefusalSubmission(set, name, channel, message);
    const absl::Status status = refusal.ok() ? session.Refuse(*std::move(refusal)) : refusal.status();
    return Failure(status, Answer::kSubmission);
  });
}

// The session of a blocking call. Released before the call waits outside the runtime, because a rank cannot end while a
// call holds its session. If a rank is a thread whose body has thrown, a call that held the session would prevent the
// rank from ending.
class BlockingCall {
 public:
  explicit BlockingCall(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  const Session& session() const { return *session_; }

  // Submits the operation and waits until it completes or MonotonicTime() reaches `deadline`. Returns the operation's
  // handle. Leaves `*submission` in an unspecified state.
  // Errors: the errors of the submission.
  absl::StatusOr<std::shared_ptr<Handle>> Run(Submission* submission, absl::Duration deadline) {
    if (session_->owns_runtime() && !Session::Names(*submission)) {
      return session_->runtime().Run(*submission, deadline);
    }
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session_->Submit(submission));
    session_.reset();
    handle->WaitUntil(deadline);
    return handle;
  }

  // Like Run(), for a group.
  absl::Status RunAll(absl::Span<const Submission> submissions, std::vector<std::shared_ptr<Handle>>* handles) {
    if (session_->owns_runtime()) return session_->runtime().RunAll(submissions, handles);
    RONDA_RETURN_IF_ERROR(session_->runtime().SubmitAll(submissions, handles));
    session_.reset();
    for (const std::shared_ptr<Handle>& handle : *handles) handle->Wait().IgnoreError();
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<Session> session_;
};

// Runs `body` with a BlockingCall for this thread's session.
template <typename Body>
ronda_status CallAndWait(const Body& body) {
  return Call([&]() -> Outcome {
    std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return NotInitialized();
    BlockingCall call(std::move(session));
    return body(call);
  });
}

// How long a call waits, and where it stores the handle of an unfinished operation.
struct WaitLimit {
  absl::Duration deadline = absl::InfiniteDuration();  // of MonotonicTime()
  ronda_handle* handle = nullptr;
};

template <typename Args>
ronda_status RunOne(const Args* args, WaitLimit limit = {}) {
  return CallAndWait([&](BlockingCall& call) -> Outcome {
    Submission& submission = scratch().submission;
    absl::Status status = ToSubmission(args, call.session().caller(), &submission);
    if (!status.ok()) return Failure(status, Answer::kSubmission);
    const OpType op = submission.request.op;
    const absl::StatusOr<std::shared_ptr<Handle>> handle = call.Run(&submission, limit.deadline);
    if (!handle.ok()) return Failure(handle.status(), Answer::kSubmission);
    if (limit.handle != nullptr && !(*handle)->done()) {
      try {
        *limit.handle = globals().handles.Add(Operation(*handle, op));
        return {};
      } catch (const std::bad_alloc&) {
        // A caller that gets an error may free the buffers, so the operation must complete first.
      }
    }
    return Failure((*handle)->Wait(), Answer::kCompletion);
  });
}

// Returns the outcome of a group's operations. Normally either all operations of a group have the same error, or none
// has an error. Only a device error can affect one bucket and not the next.
Outcome EndOfGroup(std::vector<std::shared_ptr<Handle>>* handles) {
  absl::Status first_error;
  for (const std::shared_ptr<Handle>& handle : *handles) first_error.Update(handle->Wait());
  handles->clear();
  return Failure(first_error, Answer::kCompletion);
}

template <typename Args>
ronda_status RunGroup(const Args* args, size_t count, const char* group) {
  return CallAndWait([&](BlockingCall& call) -> Outcome {
    if (count == 0) return {};
    const auto submissions = ToGroup(args, count, group, call.session().caller(), &scratch().group);
    if (!submissions.ok()) return Failure(submissions.status(), Answer::kSubmission);
    std::vector<std::shared_ptr<Handle>>& handles = scratch().handles;
    const absl::Status status = call.RunAll(*submissions, &handles);
    return status.ok() ? EndOfGroup(&handles) : Failure(status, Answer::kSubmission);
  });
}

}  // namespace
}  // namespace ronda

// Defines the functions of the header for operations on one tensor. Only the conversion of their arguments differs
// (arguments.cc).

#define RONDA_SUBMIT(operation, OPERATION)                                                             \
  ronda_status ronda_##operation##_async(const ronda_##operation##_args* args, ronda_handle* handle) { \
    return ronda::SubmitOne("ronda_" #operation "_async", args, handle);                               \
  }
RONDA_TENSOR_OPERATIONS(RONDA_SUBMIT)
#undef RONDA_SUBMIT

#define RONDA_SUBMIT_GROUP(operation, OPERATION)                                                     \
  ronda_status ronda_grouped_##operation##_async(const ronda_##operation##_args* args, size_t count, \
                                                 const char* group, ronda_handle* handles) {         \
    return ronda::SubmitGroup("ronda_grouped_" #operation "_async", args, count, group, handles);    \
  }
RONDA_GROUPED_OPERATIONS(RONDA_SUBMIT_GROUP)
#undef RONDA_SUBMIT_GROUP

// The blocking functions of the C ABI: each waits until its operation has completed, and creates no handle.
#define RONDA_RUN(operation, OPERATION) \
  ronda_status ronda_##operation(const ronda_##operation##_args* args) { return ronda::RunOne(args); }
RONDA_BLOCKING_OPERATIONS(RONDA_RUN)
#undef RONDA_RUN

ronda_status ronda_broadcast_object_async(const ronda_object_args* args, ronda_handle* handle) {
  std::shared_ptr<const ronda::ObjectBroadcast::Plan> plan;
  return ronda::Submit(
      "ronda_broadcast_object_async", handle, 1,
      [&](ronda::Session& session, ronda::Submitted* submitted) -> absl::Status {
        RONDA_ASSIGN_OR_RETURN(plan, ronda::BroadcastObject(args, session, submitted));
        return absl::OkStatus();
      },
      [&](ronda::Submitted& submitted) {
        const auto operation = [&](size_t) { return ronda::ObjectBroadcast::Of(submitted.handles()[0], plan); };
        ronda::HandOut(1, operation, submitted, handle);
      });
}

ronda_status ronda_allgather_object_async(const ronda_object_args* args, ronda_handle* handle) {
  return ronda::SubmitAsItIs(
      "ronda_allgather_object_async", ronda::OpType::kAllgather, handle, 1,
      [&](auto& session, auto* submitted) { return ronda::AllgatherObject(args, session, submitted); });
}

ronda_status ronda_sparse_allreduce_async(const ronda_sparse_allreduce_args* args, ronda_handle* indices,
                                          ronda_handle* values) {
  constexpr char kFunction[] = "ronda_sparse_allreduce_async";
  if (indices == nullptr || values == nullptr) {
    return ronda::Call([&] { return ronda::NullArgument(kFunction, indices == nullptr ? "indices" : "values"); });
  }
  ronda_handle handles[ronda::kSparseOperations];
  ronda::SparseValues gathered;
  const ronda_status status = ronda::Submit(
      kFunction, handles, ronda::kSparseOperations,
      [&](ronda::Session& session, ronda::Submitted* submitted) -> absl::Status {
        RONDA_ASSIGN_OR_RETURN(gathered, ronda::SparseAllreduce(args, session, submitted));
        return absl::OkStatus();
      },
      [&](ronda::Submitted& submitted) { ronda::HandOutSparse(submitted, gathered, handles); });
  if (status != RONDA_OK) return status;
  *indices = handles[0];
  *values = handles[1];
  return RONDA_OK;
}

ronda_status ronda_cuda_zero(void* data, size_t bytes, void* stream) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    const absl::Status status = session.runtime().FillZeroOnDevice(data, bytes, stream);
    if (status.ok()) return {};
    return {ronda::ToRondaStatus(status.code(), ronda::Answer::kSubmission),
            absl::StrCat("ronda_cuda_zero: ", status.message())};
  });
}

ronda_status ronda_refuse(ronda_process_set process_set, const char* name, const char* message) {
  return ronda::Refuse(process_set, name, nullptr, message);
}

ronda_status ronda_refuse_message(ronda_process_set process_set, int from, int to, int tag, const char* message) {
  const ronda::Channel channel = {.from = from, .to = to, .tag = tag};
  return ronda::Refuse(process_set, nullptr, &channel, message);
}

ronda_status ronda_barrier_async(ronda_process_set process_set, ronda_handle* handle) {
  return ronda::SubmitAsItIs(
      "ronda_barrier_async", ronda::OpType::kBarrier, handle, 1,
      [&](auto& session, auto* submitted) { return ronda::Barrier(process_set, 0, session, submitted); });
}

ronda_status ronda_monitored_barrier_async(ronda_process_set process_set, double timeout_s, ronda_handle* handle) {
  return ronda::SubmitAsItIs(
      "ronda_monitored_barrier_async", ronda::OpType::kBarrier, handle, 1,
      [&](auto& session, auto* submitted) { return ronda::Barrier(process_set, timeout_s, session, submitted); });
}

ronda_status ronda_remove_process_set_async(ronda_process_set id, ronda_handle* handle) {
  return ronda::SubmitAsItIs(
      "ronda_remove_process_set_async", ronda::OpType::kRemoveProcessSet, handle, 1,
      [&](auto& session, auto* submitted) { return ronda::RemoveUnawaited(id, session, submitted); });
}

ronda_status ronda_join_async(ronda_process_set process_set, ronda_absent absent, ronda_handle* handle) {
  return ronda::SubmitAsItIs("ronda_join_async", ronda::OpType::kJoin, handle, 1, [&](auto& session, auto* submitted) {
    return ronda::Join(process_set, absent, session, submitted);
  });
}

ronda_status ronda_allreduce_for(const ronda_allreduce_args* args, double timeout_s, ronda_handle* handle) {
  constexpr char kFunction[] = "ronda_allreduce_for";
  if (handle == nullptr) return ronda::Call([&] { return ronda::NullArgument(kFunction, "handle"); });
  const absl::StatusOr<absl::Duration> deadline = ronda::DeadlineOf(kFunction, timeout_s);
  if (!deadline.ok()) {
    return ronda::Call([&] { return ronda::Failure(deadline.status(), ronda::Answer::kSubmission); });
  }
  *handle = 0;
  return ronda::RunOne(args, {.deadline = *deadline, .handle = handle});
}

ronda_status ronda_grouped_allreduce(const ronda_allreduce_args* args, size_t count, const char* group) {
  return ronda::RunGroup(args, count, group);
}
