// The C ABI on top of the runtime: operations, and their handles.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "client/object_broadcast.h"
#include "client/operation.h"
#include "client/sparse_average.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using Operations = std::vector<std::shared_ptr<const Operation>>;
using Handles = std::vector<std::shared_ptr<Handle>>;

// What has been submitted and not handed out yet. Should there be no memory to hand it out, the caller is told that
// nothing was submitted, and may free the buffers: then it has to be complete.
struct Submitted {
  Submitted() = default;
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;
  ~Submitted() {
    for (const std::shared_ptr<Handle>& handle : handles) handle->Wait().IgnoreError();
  }

  Handles handles;
  std::shared_ptr<const void> contribution;  // if what travels is not the caller's
};

// Hands out what `submit` makes of the caller's arguments: as many handles as it returns operations, or none. What it
// has submitted it leaves in its second argument before it allocates anything.
template <typename SubmitFn>
ronda_status Submit(const char* function, ronda_handle* handles, const SubmitFn& submit) {
  return CallWithSession([&](Session& session) -> Outcome {
    if (handles == nullptr) return NullArgument(function, "handle");
    Submitted submitted;
    submitted.handles.reserve(1);
    absl::StatusOr<Operations> operations = submit(session, &submitted);
    if (!operations.ok()) return Failure(operations.status(), Answer::kSubmission);
    for (std::shared_ptr<const Operation>& operation : *operations) {
      *handles++ = globals().handles.Add(std::move(operation));
    }
    submitted.handles.clear();
    return {};
  });
}

// Submits one tensor into `handles`.
absl::Status SubmitTo(Session& session, Submission submission, Handles* handles) {
  // Send and receive are numbered, as they have no name that the caller gave.
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, submission.request.op == OpType::kSendRecv
                                                             ? session.SubmitNumbered(std::move(submission))
                                                             : session.runtime().Submit(std::move(submission)));
  handles->push_back(std::move(handle));
  return absl::OkStatus();
}

// Operations that are what the runtime makes of submissions.
Operations AsTheyAre(const Handles& handles, OpType op) {
  Operations operations;
  for (const std::shared_ptr<Handle>& handle : handles) operations.push_back(std::make_shared<Operation>(handle, op));
  return operations;
}

template <typename Args>
ronda_status SubmitOne(const char* function, const Args* args, ronda_handle* handle) {
  return Submit(function, handle, [&](Session& session, Submitted* submitted) -> absl::StatusOr<Operations> {
    RONDA_ASSIGN_OR_RETURN(Submission submission, ToSubmission(args, session.caller()));
    const OpType op = submission.request.op;
    RONDA_RETURN_IF_ERROR(SubmitTo(session, std::move(submission), &submitted->handles));
    return AsTheyAre(submitted->handles, op);
  });
}

template <typename Args>
ronda_status SubmitGroup(const char* function, const Args* args, size_t count, const char* group,
                         ronda_handle* handles) {
  // No handles, and nowhere to write them.
  if (count == 0) return CallWithSession([](Session&) { return Outcome(); });
  return Submit(function, handles, [&](Session& session, Submitted* submitted) -> absl::StatusOr<Operations> {
    RONDA_ASSIGN_OR_RETURN(std::vector<Submission> submissions, ToGroup(args, count, group, session.caller()));
    const OpType op = submissions.front().request.op;
    RONDA_ASSIGN_OR_RETURN(submitted->handles, session.runtime().SubmitAll(std::move(submissions)));
    return AsTheyAre(submitted->handles, op);
  });
}

absl::StatusOr<Operations> BroadcastObject(const ronda_object_args* args, Session& session, Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(Submission object, ToSubmission(args, session.caller()));
  RONDA_ASSIGN_OR_RETURN(auto members, session.runtime().ProcessSet(object.request.process_set));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const ObjectBroadcast::Plan> plan,
                         ObjectBroadcast::Prepare(std::move(members), session.caller().rank, &object));
  submitted->contribution = plan;
  RONDA_RETURN_IF_ERROR(SubmitTo(session, std::move(object), &submitted->handles));
  return Operations{std::make_shared<ObjectBroadcast>(submitted->handles.front(), std::move(plan))};
}

absl::StatusOr<Operations> AllgatherObject(const ronda_object_args* args, Session& session, Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(Submission object, ToSubmission(args, session.caller()));
  object.request.root = 0;  // an allgather has none
  RONDA_RETURN_IF_ERROR(SubmitTo(session, std::move(object), &submitted->handles));
  return AsTheyAre(submitted->handles, OpType::kAllgather);
}

// The indices, and the values.
absl::StatusOr<Operations> SparseAllreduce(const ronda_sparse_allreduce_args* args, Session& session,
                                           Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(SparseSubmissions sparse, ToSubmissions(args, session.caller()));
  const DType dtype = sparse.values.request.dtype;
  const bool averages = sparse.values.request.reduction == Reduction::kAverage;
  Shape row = sparse.values.request.shape;
  if (!row.empty()) row.front() = 1;
  std::vector<Submission> submissions = {std::move(sparse.indices), std::move(sparse.values)};
  Handles& handles = submitted->handles;
  RONDA_ASSIGN_OR_RETURN(handles, session.runtime().SubmitAll(std::move(submissions)));
  if (!averages) return AsTheyAre(handles, OpType::kAllgather);
  return Operations{
      std::make_shared<Operation>(handles[0], OpType::kAllgather),
      std::make_shared<SparseAverage>(handles[1], dtype, ElementCount(row)),
  };
}

absl::StatusOr<Operations> Join(ronda_process_set set, const ronda_absent& absent, Session& session,
                                Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(Submission submission, JoinSubmission(set, absent));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session.SubmitJoin(std::move(submission)));
  submitted->handles.push_back(std::move(handle));
  return AsTheyAre(submitted->handles, OpType::kJoin);
}

// Runs `read` on an operation that has completed well, and is one that `what` is asked of.
enum class Applicable { kNo, kYes };
template <typename ReadFn>
ronda_status ReadResult(const char* function, ronda_handle handle, absl::FunctionRef<Applicable(const Operation&)> fits,
                        const ReadFn& read) {
  return CallWithOperation(function, handle, [&](const Operation& operation) -> Outcome {
    const auto invalid = [&](absl::string_view what) -> Outcome {
      return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": handle ", handle, " is ", what)};
    };
    if (fits(operation) == Applicable::kNo) {
      return invalid(absl::StrCat("of an operation without such a result (", Name(operation.op()), ")"));
    }
    if (!operation.done()) return invalid("still in flight: call ronda_synchronize() first");
    if (const absl::Status status = operation.Wait(); !status.ok()) return Failure(status, Answer::kCompletion);
    read(operation);
    return {};
  });
}

// What the callback of a C caller is told.
void CallBack(ronda_callback callback, void* context, const absl::Status& status) {
  const std::string text(status.message());
  callback(context, ToRondaStatus(status.code(), Answer::kCompletion), text.c_str());
}

}  // namespace
}  // namespace ronda

ronda_status ronda_allreduce_async(const ronda_allreduce_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_allreduce_async", args, handle);
}

ronda_status ronda_reduce_async(const ronda_reduce_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_reduce_async", args, handle);
}

ronda_status ronda_reducescatter_async(const ronda_reducescatter_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_reducescatter_async", args, handle);
}

ronda_status ronda_broadcast_async(const ronda_broadcast_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_broadcast_async", args, handle);
}

ronda_status ronda_allgather_async(const ronda_allgather_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_allgather_async", args, handle);
}

ronda_status ronda_gather_async(const ronda_gather_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_gather_async", args, handle);
}

ronda_status ronda_scatter_async(const ronda_scatter_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_scatter_async", args, handle);
}

ronda_status ronda_alltoall_async(const ronda_alltoall_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_alltoall_async", args, handle);
}

ronda_status ronda_send_async(const ronda_send_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_send_async", args, handle);
}

ronda_status ronda_recv_async(const ronda_recv_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_recv_async", args, handle);
}

ronda_status ronda_broadcast_object_async(const ronda_object_args* args, ronda_handle* handle) {
  return ronda::Submit("ronda_broadcast_object_async", handle, [&](auto& session, auto* submitted) {
    return ronda::BroadcastObject(args, session, submitted);
  });
}

ronda_status ronda_allgather_object_async(const ronda_object_args* args, ronda_handle* handle) {
  return ronda::Submit("ronda_allgather_object_async", handle, [&](auto& session, auto* submitted) {
    return ronda::AllgatherObject(args, session, submitted);
  });
}

ronda_status ronda_sparse_allreduce_async(const ronda_sparse_allreduce_args* args, ronda_handle* indices,
                                          ronda_handle* values) {
  constexpr char kFunction[] = "ronda_sparse_allreduce_async";
  if (indices == nullptr || values == nullptr) {
    return ronda::Call([&] { return ronda::NullArgument(kFunction, indices == nullptr ? "indices" : "values"); });
  }
  ronda_handle handles[2];
  const ronda_status status = ronda::Submit(kFunction, handles, [&](auto& session, auto* submitted) {
    return ronda::SparseAllreduce(args, session, submitted);
  });
  if (status != RONDA_OK) return status;
  *indices = handles[0];
  *values = handles[1];
  return RONDA_OK;
}

ronda_status ronda_grouped_allreduce_async(const ronda_allreduce_args* args, size_t count, const char* group,
                                           ronda_handle* handles) {
  return ronda::SubmitGroup("ronda_grouped_allreduce_async", args, count, group, handles);
}

ronda_status ronda_grouped_allgather_async(const ronda_allgather_args* args, size_t count, const char* group,
                                           ronda_handle* handles) {
  return ronda::SubmitGroup("ronda_grouped_allgather_async", args, count, group, handles);
}

ronda_status ronda_grouped_reducescatter_async(const ronda_reducescatter_args* args, size_t count, const char* group,
                                               ronda_handle* handles) {
  return ronda::SubmitGroup("ronda_grouped_reducescatter_async", args, count, group, handles);
}

ronda_status ronda_join_async(ronda_process_set process_set, ronda_absent absent, ronda_handle* handle) {
  return ronda::Submit("ronda_join_async", handle, [&](auto& session, auto* submitted) {
    return ronda::Join(process_set, absent, session, submitted);
  });
}

ronda_status ronda_poll(ronda_handle handle, int* done) {
  return ronda::CallWithOperation("ronda_poll", handle, [&](const ronda::Operation& operation) -> ronda::Outcome {
    if (done == nullptr) return ronda::NullArgument("ronda_poll", "done");
    *done = operation.done() ? 1 : 0;
    return {};
  });
}

ronda_status ronda_synchronize(ronda_handle handle) {
  return ronda::CallWithOperation("ronda_synchronize", handle, [&](const ronda::Operation& operation) {
    return ronda::Failure(operation.Wait(), ronda::Answer::kCompletion);
  });
}

ronda_status ronda_output(ronda_handle handle, const void** data, int64_t* rows, const int64_t** rows_per_member,
                          int* members) {
  constexpr char kFunction[] = "ronda_output";
  if (data == nullptr || rows == nullptr || (rows_per_member != nullptr && members == nullptr)) {
    const char* const missing = data == nullptr ? "data" : rows == nullptr ? "rows" : "members";
    return ronda::Call([&] { return ronda::NullArgument(kFunction, missing); });
  }
  return ronda::ReadResult(
      kFunction, handle,
      [](const ronda::Operation& operation) {
        return operation.HasOutput() ? ronda::Applicable::kYes : ronda::Applicable::kNo;
      },
      [&](const ronda::Operation& operation) {
        const ronda::Output output = operation.output();
        *data = output.data;
        *rows = output.rows;
        if (rows_per_member == nullptr) return;
        *rows_per_member = output.rows_per_member.data();
        *members = static_cast<int>(output.rows_per_member.size());
      });
}

ronda_status ronda_found_inf(ronda_handle handle, int* found) {
  constexpr char kFunction[] = "ronda_found_inf";
  if (found == nullptr) return ronda::Call([&] { return ronda::NullArgument(kFunction, "found"); });
  return ronda::ReadResult(
      kFunction, handle,
      [](const ronda::Operation& operation) {
        return operation.Reduces() ? ronda::Applicable::kYes : ronda::Applicable::kNo;
      },
      [&](const ronda::Operation& operation) {
        *found = operation.handle().result().overflow == ronda::OperationResult::Overflow::kFound ? 1 : 0;
      });
}

ronda_status ronda_last_rank(ronda_handle handle, int* last_rank) {
  constexpr char kFunction[] = "ronda_last_rank";
  if (last_rank == nullptr) return ronda::Call([&] { return ronda::NullArgument(kFunction, "last_rank"); });
  return ronda::ReadResult(
      kFunction, handle,
      [](const ronda::Operation& operation) {
        return operation.op() == ronda::OpType::kJoin ? ronda::Applicable::kYes : ronda::Applicable::kNo;
      },
      [&](const ronda::Operation& operation) { *last_rank = static_cast<int>(operation.handle().result().number); });
}

ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context) {
  return ronda::Call([&]() -> ronda::Outcome {
    if (callback == nullptr) return {RONDA_ERROR_INVALID_ARGUMENT, "ronda_on_completion: callback is NULL"};
    const std::shared_ptr<const ronda::Operation> operation = ronda::globals().handles.Find(handle);
    if (operation == nullptr) return ronda::UnknownHandle("ronda_on_completion", handle);
    // The operation's own verdict may differ from the runtime's.
    // What the callback submits is of the same rank, on whichever thread it runs.
    const absl::Status registered =
        operation->handle().OnCompletion([=, role = ronda::RankContexts::CurrentRole()](const absl::Status&) {
          const ronda::RankContexts::Visit visit(role);
          ronda::CallBack(callback, context, operation->Wait());
        });
    return ronda::Failure(registered, ronda::Answer::kSubmission);
  });
}

ronda_status ronda_release(ronda_handle handle) {
  return ronda::Call([&]() -> ronda::Outcome {
    const std::shared_ptr<const ronda::Operation> operation = ronda::globals().handles.Remove(handle);
    if (operation == nullptr) return ronda::UnknownHandle("ronda_release", handle);
    static_cast<void>(operation->Wait());  // its error is for ronda_synchronize() to tell
    return {};
  });
}
