// SPDX-License-Identifier: Apache-2.0

// The C ABI on top of the runtime: handles, and the results of operations.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/c_api_support.h"

namespace ronda {
namespace {

// Runs `read` on an operation that has succeeded and that has the requested kind of result. With kOnceOrdered, the
// operation may still be in flight if a stream waits for it.
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

// Describes a result that is a number, and the kind of operation that has this result.
struct NumberOf {
  OpType op;
  Applicable applicable;
  const char* argument;  // the argument that receives the number, for messages
};

ronda_status ReadNumber(const char* function, ronda_handle handle, const NumberOf& of, int* number) {
  if (number == nullptr) return Call([&] { return NullArgument(function, of.argument); });
  return ReadResult(
      function, handle,
      [&](const Operation& operation) { return operation.op() == of.op ? of.applicable : Applicable::kNo; },
      [&](const Operation& operation) { *number = static_cast<int>(operation.handle().result().number); });
}

// Passes `post` a function that calls `callback`; `post` runs that function later, on any thread. The callback gets the
// status returned by `outcome`, and acts for the calling thread's rank.
template <typename PostFn, typename OutcomeFn>
Outcome PostCallback(const char* function, ronda_callback callback, void* context, const PostFn& post,
                     const OutcomeFn& outcome) {
  if (callback == nullptr) return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": callback is NULL")};
  const absl::Status posted = post([=, role = RankContexts::CurrentRole()](const absl::Status&) {
    const RankContexts::Visit visit(role);
    const Outcome ended = outcome();
    callback(context, ended.code, ended.text.c_str());
  });
  return Failure(posted, Answer::kSubmission);
}

// Makes `stream` wait for an operation, and records in the caller's handle that a stream waits.
Outcome OrderBefore(const Operation& operation, ronda_handle handle, void* stream) {
  const absl::Status status = operation.OrderBefore(stream);
  if (status.ok()) globals().handles.MarkOrdered(handle);
  // INVALID_ARGUMENT is an error of the stream, not of the operation.
  const bool is_about_stream = absl::IsInvalidArgument(status);
  return Failure(status, is_about_stream ? Answer::kSubmission : Answer::kCompletion);
}

// Releases the handle.
Outcome Release(const char* function, ronda_handle handle) {
  const Operation operation = globals().handles.Remove(handle);
  if (!operation.exists()) return UnknownHandle(function, handle);
  // Ignores the operation's error, because ronda_synchronize() reports it.
  if (!operation.is_ordered()) static_cast<void>(operation.Wait());
  return {};
}

// Runs `visit` on each handle of the caller, and returns the first error.
template <typename VisitFn>
Outcome ForAll(const char* function, absl::Span<const ronda_handle> handles, const VisitFn& visit) {
  if (handles.data() == nullptr && !handles.empty()) {
    return {RONDA_ERROR_INVALID_ARGUMENT,
            absl::StrCat(function, ": handles is NULL, but count is ", handles.size(), ": pass an array of that many")};
  }
  Outcome first_error;
  for (const ronda_handle handle : handles) {
    Outcome outcome = visit(handle);
    if (first_error.ok()) first_error = std::move(outcome);
  }
  return first_error;
}

// Like ForAll(), but passes `visit` the operation of each handle.
template <typename VisitFn>
Outcome ForAllOperations(const char* function, absl::Span<const ronda_handle> handles, const VisitFn& visit) {
  return ForAll(function, handles, [&](ronda_handle handle) -> Outcome {
    const Operation operation = globals().handles.Find(handle);
    return operation.exists() ? visit(operation) : UnknownHandle(function, handle);
  });
}

}  // namespace
}  // namespace ronda

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

ronda_status ronda_synchronize_for(ronda_handle handle, double timeout_s, int* done) {
  constexpr char kFunction[] = "ronda_synchronize_for";
  return ronda::CallWithOperation(kFunction, handle, [&](const ronda::Operation& operation) -> ronda::Outcome {
    if (done == nullptr) return ronda::NullArgument(kFunction, "done");
    const absl::StatusOr<absl::Duration> deadline = ronda::DeadlineOf(kFunction, timeout_s);
    if (!deadline.ok()) return ronda::Failure(deadline.status(), ronda::Answer::kSubmission);
    *done = operation.WaitUntil(*deadline) ? 1 : 0;
    return *done == 0 ? ronda::Outcome() : ronda::Failure(operation.Wait(), ronda::Answer::kCompletion);
  });
}

ronda_status ronda_synchronize_on_stream(ronda_handle handle, void* stream) {
  return ronda::CallWithOperation("ronda_synchronize_on_stream", handle, [&](const ronda::Operation& operation) {
    return ronda::OrderBefore(operation, handle, stream);
  });
}

ronda_status ronda_synchronize_on_stream_for(ronda_handle handle, void* stream, double timeout_s, int* done) {
  constexpr char kFunction[] = "ronda_synchronize_on_stream_for";
  return ronda::CallWithOperation(kFunction, handle, [&](const ronda::Operation& operation) -> ronda::Outcome {
    if (done == nullptr) return ronda::NullArgument(kFunction, "done");
    const absl::StatusOr<absl::Duration> deadline = ronda::DeadlineOf(kFunction, timeout_s);
    if (!deadline.ok()) return ronda::Failure(deadline.status(), ronda::Answer::kSubmission);
    *done = operation.MayOrderBy(*deadline) ? 1 : 0;
    return *done == 0 ? ronda::Outcome() : ronda::OrderBefore(operation, handle, stream);
  });
}

ronda_status ronda_synchronize_on_stream_async(ronda_handle handle, void* stream, ronda_callback callback,
                                               void* context) {
  constexpr char kFunction[] = "ronda_synchronize_on_stream_async";
  return ronda::CallWithOperation(kFunction, handle, [&](const ronda::Operation& operation) {
    return ronda::PostCallback(
        kFunction, callback, context,
        [&](auto run) { return ronda::OnceOrderable(operation.handle(), std::move(run)); },
        [operation, handle, stream] { return ronda::OrderBefore(operation, handle, stream); });
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

ronda_status ronda_source(ronda_handle handle, int* rank) {
  const ronda::NumberOf of = {ronda::OpType::kSendRecv, ronda::Applicable::kOnceOrdered, "rank"};
  return ronda::ReadNumber("ronda_source", handle, of, rank);
}

ronda_status ronda_averaged_over(ronda_handle handle, int* ranks) {
  const ronda::NumberOf of = {ronda::OpType::kAllgather, ronda::Applicable::kOnceOrdered, "ranks"};
  return ronda::ReadNumber("ronda_averaged_over", handle, of, ranks);
}

ronda_status ronda_last_rank(ronda_handle handle, int* last_rank) {
  const ronda::NumberOf of = {ronda::OpType::kJoin, ronda::Applicable::kOnceComplete, "last_rank"};
  return ronda::ReadNumber("ronda_last_rank", handle, of, last_rank);
}

ronda_status ronda_on_completion(ronda_handle handle, ronda_callback callback, void* context) {
  constexpr char kFunction[] = "ronda_on_completion";
  return ronda::CallWithOperation(kFunction, handle, [&](const ronda::Operation& operation) {
    return ronda::PostCallback(
        kFunction, callback, context, [&](auto run) { return operation.handle().OnCompletion(std::move(run)); },
        // Reads the operation's status here, because it may differ from the status in the runtime.
        [operation] { return ronda::Failure(operation.Wait(), ronda::Answer::kCompletion); });
  });
}

ronda_status ronda_release(ronda_handle handle) {
  return ronda::Call([&] { return ronda::Release("ronda_release", handle); });
}

ronda_status ronda_release_on_stream(ronda_handle handle, void* stream) {
  return ronda::CallWithOperation("ronda_release_on_stream", handle,
                                  [&](const ronda::Operation& operation) -> ronda::Outcome {
                                    if (!operation.is_ordered()) static_cast<void>(operation.Wait());
                                    const absl::Status status = operation.handle().FreeAfter(stream);
                                    if (!status.ok()) return ronda::Failure(status, ronda::Answer::kSubmission);
                                    ronda::globals().handles.Remove(handle);
                                    return {};
                                  });
}

ronda_status ronda_poll_all(const ronda_handle* handles, size_t count, int* done) {
  constexpr char kFunction[] = "ronda_poll_all";
  return ronda::Call([&]() -> ronda::Outcome {
    if (done == nullptr) return ronda::NullArgument(kFunction, "done");
    bool all_done = true;
    ronda::Outcome outcome =
        ronda::ForAllOperations(kFunction, {handles, count}, [&](const ronda::Operation& operation) -> ronda::Outcome {
          all_done = all_done && operation.done();
          return {};
        });
    if (outcome.ok()) *done = all_done ? 1 : 0;
    return outcome;
  });
}

ronda_status ronda_synchronize_all(const ronda_handle* handles, size_t count) {
  return ronda::Call([&] {
    return ronda::ForAllOperations("ronda_synchronize_all", {handles, count}, [](const ronda::Operation& operation) {
      return ronda::Failure(operation.Wait(), ronda::Answer::kCompletion);
    });
  });
}

ronda_status ronda_release_all(const ronda_handle* handles, size_t count) {
  constexpr char kFunction[] = "ronda_release_all";
  return ronda::Call([&] {
    return ronda::ForAll(kFunction, {handles, count},
                         [&](ronda_handle handle) { return ronda::Release(kFunction, handle); });
  });
}
