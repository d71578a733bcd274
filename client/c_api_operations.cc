// The C ABI on top of the runtime: operations, and their handles.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <cstdint>
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

using Handles = std::vector<std::shared_ptr<Handle>>;

// What has been submitted and not handed out yet. Should there be no memory to hand it out, the caller is told that
// nothing was submitted, and may free the buffers: then it has to be complete.
class Submitted {
 public:
  // `handles` is empty, and will be again.
  explicit Submitted(Handles* handles) : handles_(*handles) {}
  Submitted(const Submitted&) = delete;
  Submitted& operator=(const Submitted&) = delete;
  ~Submitted() {
    for (const std::shared_ptr<Handle>& handle : handles_) handle->Wait().IgnoreError();
    handles_.clear();
  }

  Handles& handles() { return handles_; }
  // What travels, if it is not the caller's.
  void Keep(std::shared_ptr<const void> contribution) { contribution_ = std::move(contribution); }
  // Somebody else has taken note of the handles.
  void HandedOut() { handles_.clear(); }

 private:
  Handles& handles_;
  std::shared_ptr<const void> contribution_;
};

// Writes the numbers of `count` operations, operation(0) to operation(count - 1), or, after an exception, none.
template <typename OperationFn>
void HandOut(size_t count, const OperationFn& operation, ronda_handle* handles) {
  HandleTable& table = globals().handles;
  size_t done = 0;
  try {
    for (; done < count; ++done) handles[done] = table.Add(operation(done));
  } catch (...) {
    while (done > 0) table.Remove(handles[--done]);
    throw;
  }
}

// Runs `submit`, which leaves what it has submitted in its second argument before it allocates anything, and then
// `hand_out` on that.
template <typename SubmitFn, typename HandOutFn>
ronda_status Submit(const char* function, const ronda_handle* handles, const SubmitFn& submit,
                    const HandOutFn& hand_out) {
  return CallWithSession([&](Session& session) -> Outcome {
    if (handles == nullptr) return NullArgument(function, "handle");
    Submitted submitted(&scratch().handles);
    submitted.handles().reserve(1);
    const absl::Status status = submit(session, &submitted);
    if (!status.ok()) return Failure(status, Answer::kSubmission);
    hand_out(submitted.handles());
    submitted.HandedOut();
    return {};
  });
}

// The same for operations that are what the runtime makes of submissions.
template <typename SubmitFn>
ronda_status SubmitAsItIs(const char* function, OpType op, ronda_handle* handles, const SubmitFn& submit) {
  return Submit(function, handles, submit, [&](const Handles& submitted) {
    HandOut(
        submitted.size(), [&](size_t i) { return Operation(submitted[i], op); }, handles);
  });
}

// Submits one tensor into `handles`.
absl::Status SubmitTo(Session& session, const Submission& submission, Handles* handles) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session.Submit(submission));
  handles->push_back(std::move(handle));
  return absl::OkStatus();
}

template <typename Args>
ronda_status SubmitOne(const char* function, OpType op, const Args* args, ronda_handle* handle) {
  return SubmitAsItIs(function, op, handle, [&](Session& session, Submitted* submitted) -> absl::Status {
    Submission& submission = scratch().submission;
    RONDA_RETURN_IF_ERROR(ToSubmission(args, session.caller(), &submission));
    return SubmitTo(session, submission, &submitted->handles());
  });
}

template <typename Args>
ronda_status SubmitGroup(const char* function, OpType op, const Args* args, size_t count, const char* group,
                         ronda_handle* handles) {
  // No handles, and nowhere to write them.
  if (count == 0) return CallWithSession([](Session&) { return Outcome(); });
  return SubmitAsItIs(function, op, handles, [&](Session& session, Submitted* submitted) -> absl::Status {
    RONDA_ASSIGN_OR_RETURN(const auto submissions, ToGroup(args, count, group, session.caller(), &scratch().group));
    return session.runtime().SubmitAll(submissions, &submitted->handles());
  });
}

absl::StatusOr<std::shared_ptr<const ObjectBroadcast::Plan>> BroadcastObject(const ronda_object_args* args,
                                                                             Session& session, Submitted* submitted) {
  Submission object;
  RONDA_RETURN_IF_ERROR(ToSubmission(args, session.caller(), &object));
  RONDA_ASSIGN_OR_RETURN(auto members, session.runtime().ProcessSet(object.request.process_set));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<const ObjectBroadcast::Plan> plan,
                         ObjectBroadcast::Prepare(std::move(members), session.caller().rank, &object));
  submitted->Keep(plan);
  RONDA_RETURN_IF_ERROR(SubmitTo(session, object, &submitted->handles()));
  return plan;
}

absl::Status AllgatherObject(const ronda_object_args* args, Session& session, Submitted* submitted) {
  Submission object;
  RONDA_RETURN_IF_ERROR(ToSubmission(args, session.caller(), &object));
  object.request.root = 0;  // an allgather has none
  return SubmitTo(session, object, &submitted->handles());
}

// What a sparse allreduce makes of the values that were gathered.
struct SparseValues {
  bool averages = false;
  DType dtype = DType::kFloat32;
  int64_t row = 0;  // elements
};

// Submits the indices, and the values.
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

void HandOutSparse(const Handles& submitted, const SparseValues& values, ronda_handle* handles) {
  const auto operation = [&](size_t i) {
    if (i == 0 || !values.averages) return Operation(submitted[i], OpType::kAllgather);
    return SparseAverage::Of(submitted[i], values.dtype, values.row);
  };
  HandOut(2, operation, handles);
}

absl::Status Join(ronda_process_set set, const ronda_absent& absent, Session& session, Submitted* submitted) {
  RONDA_ASSIGN_OR_RETURN(const Submission submission, JoinSubmission(set, absent));
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session.SubmitJoin(submission));
  submitted->handles().push_back(std::move(handle));
  return absl::OkStatus();
}

// Runs `read` on an operation that has completed well, and has the result that is asked for: or, where streams may read
// that, an operation that a stream waits for.
enum class Applicable { kNo, kOnceComplete, kOnceOrdered };
template <typename ReadFn>
ronda_status ReadResult(const char* function, ronda_handle handle, absl::FunctionRef<Applicable(const Operation&)> fits,
                        const ReadFn& read) {
  return CallWithOperation(function, handle, [&](const Operation& operation) -> Outcome {
    const auto invalid = [&](absl::string_view what) -> Outcome {
      return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": handle ", handle, " is ", what)};
    };
    const Applicable applicable = fits(operation);
    if (applicable == Applicable::kNo) {
      return invalid(absl::StrCat("of an operation without such a result (", Name(operation.op()), ")"));
    }
    if (operation.done()) {
      if (const absl::Status status = operation.Wait(); !status.ok()) return Failure(status, Answer::kCompletion);
    } else if (applicable != Applicable::kOnceOrdered || !operation.is_ordered()) {
      return invalid("still in flight: call ronda_synchronize() first");
    }
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
  return ronda::SubmitOne("ronda_allreduce_async", ronda::OpType::kAllreduce, args, handle);
}

ronda_status ronda_reduce_async(const ronda_reduce_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_reduce_async", ronda::OpType::kReduce, args, handle);
}

ronda_status ronda_reducescatter_async(const ronda_reducescatter_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_reducescatter_async", ronda::OpType::kReduceScatter, args, handle);
}

ronda_status ronda_broadcast_async(const ronda_broadcast_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_broadcast_async", ronda::OpType::kBroadcast, args, handle);
}

ronda_status ronda_allgather_async(const ronda_allgather_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_allgather_async", ronda::OpType::kAllgather, args, handle);
}

ronda_status ronda_gather_async(const ronda_gather_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_gather_async", ronda::OpType::kGather, args, handle);
}

ronda_status ronda_scatter_async(const ronda_scatter_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_scatter_async", ronda::OpType::kScatter, args, handle);
}

ronda_status ronda_alltoall_async(const ronda_alltoall_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_alltoall_async", ronda::OpType::kAlltoall, args, handle);
}

ronda_status ronda_send_async(const ronda_send_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_send_async", ronda::OpType::kSendRecv, args, handle);
}

ronda_status ronda_recv_async(const ronda_recv_args* args, ronda_handle* handle) {
  return ronda::SubmitOne("ronda_recv_async", ronda::OpType::kSendRecv, args, handle);
}

ronda_status ronda_broadcast_object_async(const ronda_object_args* args, ronda_handle* handle) {
  std::shared_ptr<const ronda::ObjectBroadcast::Plan> plan;
  return ronda::Submit(
      "ronda_broadcast_object_async", handle,
      [&](ronda::Session& session, ronda::Submitted* submitted) -> absl::Status {
        RONDA_ASSIGN_OR_RETURN(plan, ronda::BroadcastObject(args, session, submitted));
        return absl::OkStatus();
      },
      [&](const ronda::Handles& handles) {
        const auto operation = [&](size_t) { return ronda::ObjectBroadcast::Of(handles[0], plan); };
        ronda::HandOut(1, operation, handle);
      });
}

ronda_status ronda_allgather_object_async(const ronda_object_args* args, ronda_handle* handle) {
  return ronda::SubmitAsItIs(
      "ronda_allgather_object_async", ronda::OpType::kAllgather, handle,
      [&](auto& session, auto* submitted) { return ronda::AllgatherObject(args, session, submitted); });
}

ronda_status ronda_sparse_allreduce_async(const ronda_sparse_allreduce_args* args, ronda_handle* indices,
                                          ronda_handle* values) {
  constexpr char kFunction[] = "ronda_sparse_allreduce_async";
  if (indices == nullptr || values == nullptr) {
    return ronda::Call([&] { return ronda::NullArgument(kFunction, indices == nullptr ? "indices" : "values"); });
  }
  ronda_handle handles[2];
  ronda::SparseValues gathered;
  const ronda_status status = ronda::Submit(
      kFunction, handles,
      [&](ronda::Session& session, ronda::Submitted* submitted) -> absl::Status {
        RONDA_ASSIGN_OR_RETURN(gathered, ronda::SparseAllreduce(args, session, submitted));
        return absl::OkStatus();
      },
      [&](const ronda::Handles& submitted) { ronda::HandOutSparse(submitted, gathered, handles); });
  if (status != RONDA_OK) return status;
  *indices = handles[0];
  *values = handles[1];
  return RONDA_OK;
}

ronda_status ronda_grouped_allreduce_async(const ronda_allreduce_args* args, size_t count, const char* group,
                                           ronda_handle* handles) {
  return ronda::SubmitGroup("ronda_grouped_allreduce_async", ronda::OpType::kAllreduce, args, count, group, handles);
}

ronda_status ronda_grouped_allgather_async(const ronda_allgather_args* args, size_t count, const char* group,
                                           ronda_handle* handles) {
  return ronda::SubmitGroup("ronda_grouped_allgather_async", ronda::OpType::kAllgather, args, count, group, handles);
}

ronda_status ronda_grouped_reducescatter_async(const ronda_reducescatter_args* args, size_t count, const char* group,
                                               ronda_handle* handles) {
  return ronda::SubmitGroup("ronda_grouped_reducescatter_async", ronda::OpType::kReduceScatter, args, count, group,
                            handles);
}

ronda_status ronda_cuda_zero(void* data, size_t bytes, void* stream) {
  return ronda::CallWithSession([&](ronda::Session& session) -> ronda::Outcome {
    const absl::Status status = session.runtime().FillZeroOnDevice(data, bytes, stream);
    if (status.ok()) return {};
    return {ronda::ToRondaStatus(status.code(), ronda::Answer::kSubmission),
            absl::StrCat("ronda_cuda_zero: ", status.message())};
  });
}

ronda_status ronda_join_async(ronda_process_set process_set, ronda_absent absent, ronda_handle* handle) {
  return ronda::SubmitAsItIs("ronda_join_async", ronda::OpType::kJoin, handle, [&](auto& session, auto* submitted) {
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

ronda_status ronda_synchronize_on_stream(ronda_handle handle, void* stream) {
  return ronda::CallWithOperation("ronda_synchronize_on_stream", handle, [&](const ronda::Operation& operation) {
    const absl::Status status = operation.OrderBefore(stream);
    if (status.ok()) ronda::globals().handles.NoteOrdered(handle);
    // What is wrong with the stream says nothing of how the operation ended.
    const bool is_about_stream = absl::IsInvalidArgument(status);
    return ronda::Failure(status, is_about_stream ? ronda::Answer::kSubmission : ronda::Answer::kCompletion);
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
        return operation.HasOutput() ? ronda::Applicable::kOnceOrdered : ronda::Applicable::kNo;
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
        return operation.Reduces() ? ronda::Applicable::kOnceComplete : ronda::Applicable::kNo;
      },
      [&](const ronda::Operation& operation) {
        *found = operation.handle().result().FindOverflow() == ronda::OperationResult::Overflow::kFound ? 1 : 0;
      });
}

ronda_status ronda_last_rank(ronda_handle handle, int* last_rank) {
  constexpr char kFunction[] = "ronda_last_rank";
  if (last_rank == nullptr) return ronda::Call([&] { return ronda::NullArgument(kFunction, "last_rank"); });
  return ronda::ReadResult(
      kFunction, handle,
      [](const ronda::Operation& operation) {
        return operation.op() == ronda::OpType::kJoin ? ronda::Applicable::kOnceComplete : ronda::Applicable::kNo;
      },
      [&](const ronda::Operation& operation) { *last_rank = static_cast<int>(operation.handle().result().number); });
}

ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context) {
  return ronda::Call([&]() -> ronda::Outcome {
    if (callback == nullptr) return {RONDA_ERROR_INVALID_ARGUMENT, "ronda_on_completion: callback is NULL"};
    const ronda::Operation operation = ronda::globals().handles.Find(handle);
    if (!operation.exists()) return ronda::UnknownHandle("ronda_on_completion", handle);
    // The operation's own verdict may differ from the runtime's.
    // What the callback submits is of the same rank, on whichever thread it runs.
    const absl::Status registered =
        operation.handle().OnCompletion([=, role = ronda::RankContexts::CurrentRole()](const absl::Status&) {
          const ronda::RankContexts::Visit visit(role);
          ronda::CallBack(callback, context, operation.Wait());
        });
    return ronda::Failure(registered, ronda::Answer::kSubmission);
  });
}

ronda_status ronda_release(ronda_handle handle) {
  return ronda::Call([&]() -> ronda::Outcome {
    const ronda::Operation operation = ronda::globals().handles.Remove(handle);
    if (!operation.exists()) return ronda::UnknownHandle("ronda_release", handle);
    // Its error is for ronda_synchronize() to tell.
    if (!operation.is_ordered()) static_cast<void>(operation.Wait());
    return {};
  });
}
