// The C ABI on top of the runtime: the only mutable global state, and the only place where exceptions are caught.

// Everything is compiled with hidden visibility; these declarations are what the library is for.
#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/arguments.h"
#include "client/default_runtime.h"
#include "client/handle_table.h"
#include "client/status_code.h"
#include "runtime/base/config.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/bootstrap/bootstrap.h"
#include "runtime/engine/runtime.h"

namespace ronda {
namespace {

// Never destroyed: threads of the trainer may still be in here when the process exits.
struct Globals {
  DefaultRuntime runtime;
  HandleTable handles;
};

Globals& globals() {
  static Globals* const instance = new Globals;
  return *instance;
}

// This thread's last error. `text` points into `storage`, or at a literal where there was no memory for a string.
struct LastError {
  std::string storage;
  const char* text = "";
};

thread_local LastError last_error;

ronda_status FailWithLiteral(ronda_status code, const char* text) {
  last_error.text = text;
  return code;
}

// Runs the body of a C function: nothing it throws goes further.
template <typename Body>
ronda_status Call(const Body& body) noexcept {
  try {
    Outcome outcome = body();
    if (outcome.ok()) return RONDA_OK;
    last_error.storage = std::move(outcome.text);
    last_error.text = last_error.storage.c_str();
    return outcome.code;
  } catch (const std::bad_alloc&) {
    return FailWithLiteral(RONDA_ERROR_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    // Its text lives in the exception; copying it may throw in turn, which noexcept would turn into the end of the
    // process.
    try {
      last_error.storage = error.what();
      last_error.text = last_error.storage.c_str();
    } catch (...) {
      last_error.text = "an exception was thrown, and there is no memory for its text";
    }
    return RONDA_ERROR_INTERNAL;
  } catch (...) {
    return FailWithLiteral(RONDA_ERROR_INTERNAL, "an exception of an unknown type was thrown");
  }
}

Outcome Failure(const absl::Status& status, Answer from) {
  return {ToRondaStatus(status.code(), from), std::string(status.message())};
}

Outcome NullArgument(absl::string_view function, absl::string_view argument) {
  return {RONDA_ERROR_INVALID_ARGUMENT, absl::StrCat(function, ": ", argument, " is NULL: pass where to write it")};
}

Outcome UnknownHandle(absl::string_view function, ronda_handle handle) {
  if (handle > 0 && globals().runtime.Get() == nullptr) return NotInitialized();
  return {RONDA_ERROR_INVALID_ARGUMENT,
          absl::StrCat(function, ": there is no handle ", handle, ": it was never given out, or it was released")};
}

// Submits what `to_submission` makes of the caller's arguments, and hands out a handle.
template <typename ToSubmissionFn>
Outcome Submit(absl::string_view function, const ToSubmissionFn& to_submission, ronda_handle* handle) {
  if (handle == nullptr) return NullArgument(function, "handle");
  const std::shared_ptr<Session> session = globals().runtime.Get();
  if (session == nullptr) return NotInitialized();
  absl::StatusOr<Submission> submission = to_submission(session->topology());
  if (!submission.ok()) return Failure(submission.status(), Answer::kSubmission);
  const OpType op = submission->request.op;
  absl::StatusOr<std::shared_ptr<Handle>> submitted = session->runtime().Submit(*std::move(submission));
  if (!submitted.ok()) return Failure(submitted.status(), Answer::kSubmission);
  *handle = globals().handles.Add({*std::move(submitted), op});
  return {};
}

absl::StatusOr<std::unique_ptr<Runtime>> JoinJob(const ronda_options* options) {
  RONDA_ASSIGN_OR_RETURN(Config config, ReadConfig(ProcessEnvironment()));
  RONDA_RETURN_IF_ERROR(ApplyOptions(options, &config.tunables));
  SetLogLevel(config.log_level);
  RONDA_ASSIGN_OR_RETURN(Job job, Bootstrap(config));
  return Runtime::Create({.tunables = config.tunables}, std::move(job.topology), std::move(job.transport));
}

Outcome Barrier() {
  const std::shared_ptr<Session> session = globals().runtime.Get();
  if (session == nullptr) return NotInitialized();
  const absl::StatusOr<std::shared_ptr<Handle>> barrier = session->SubmitBarrier();
  if (!barrier.ok()) return Failure(barrier.status(), Answer::kSubmission);
  return Failure((*barrier)->Wait(), Answer::kCompletion);
}

Outcome AllgatherOutput(ronda_handle id, const void** data, int64_t* first_dim, int64_t* first_dims) {
  if (data == nullptr) return NullArgument("ronda_allgather_output", "data");
  if (first_dim == nullptr) return NullArgument("ronda_allgather_output", "first_dim");
  const std::optional<HeldOperation> operation = globals().handles.Find(id);
  if (!operation) return UnknownHandle("ronda_allgather_output", id);
  if (operation->op != OpType::kAllgather) {
    return {RONDA_ERROR_INVALID_ARGUMENT,
            absl::StrCat("ronda_allgather_output: handle ", id, " is of an operation without an output of its own (",
                         Name(operation->op), "), not of an allgather")};
  }
  if (!operation->handle->done()) {
    return {RONDA_ERROR_INVALID_ARGUMENT,
            absl::StrCat("ronda_allgather_output: handle ", id, " is still in flight: call ronda_synchronize() first")};
  }
  if (const absl::Status status = operation->handle->Wait(); !status.ok()) return Failure(status, Answer::kCompletion);
  const OperationResult& gathered = operation->handle->result();
  *data = gathered.data.get();
  *first_dim = std::accumulate(gathered.first_dims.begin(), gathered.first_dims.end(), int64_t{0});
  if (first_dims != nullptr) std::copy(gathered.first_dims.begin(), gathered.first_dims.end(), first_dims);
  return {};
}

// A number of the topology, -1 while there is none.
int FromTopology(int Topology::*member) {
  const std::shared_ptr<Session> session = globals().runtime.Get();
  return session == nullptr ? -1 : session->topology().*member;
}

}  // namespace
}  // namespace ronda

using ronda::Topology;

const char* ronda_version(void) { return ronda::kVersion; }

const char* ronda_last_error(void) { return ronda::last_error.text; }

ronda_status ronda_init(const ronda_options* options) {
  return ronda::Call([&] { return ronda::globals().runtime.Start([&] { return ronda::JoinJob(options); }); });
}

ronda_status ronda_shutdown(void) {
  return ronda::Call([] { return ronda::globals().runtime.Stop(); });
}

int ronda_is_initialized(void) { return ronda::globals().runtime.Get() != nullptr ? 1 : 0; }
int ronda_rank(void) { return ronda::FromTopology(&Topology::rank); }
int ronda_size(void) { return ronda::FromTopology(&Topology::size); }
int ronda_local_rank(void) { return ronda::FromTopology(&Topology::local_rank); }
int ronda_local_size(void) { return ronda::FromTopology(&Topology::local_size); }
int ronda_cross_rank(void) { return ronda::FromTopology(&Topology::cross_rank); }
int ronda_cross_size(void) { return ronda::FromTopology(&Topology::cross_size); }

ronda_status ronda_allreduce_async(const ronda_allreduce_args* args, ronda_handle* handle) {
  return ronda::Call([&] {
    return ronda::Submit(
        "ronda_allreduce_async", [&](const Topology&) { return ronda::ToSubmission(args); }, handle);
  });
}

ronda_status ronda_broadcast_async(const ronda_broadcast_args* args, ronda_handle* handle) {
  return ronda::Call([&] {
    return ronda::Submit(
        "ronda_broadcast_async", [&](const Topology& topology) { return ronda::ToSubmission(args, topology.size); },
        handle);
  });
}

ronda_status ronda_allgather_async(const ronda_allgather_args* args, ronda_handle* handle) {
  return ronda::Call([&] {
    return ronda::Submit(
        "ronda_allgather_async", [&](const Topology&) { return ronda::ToSubmission(args); }, handle);
  });
}

ronda_status ronda_barrier(void) { return ronda::Call(ronda::Barrier); }

ronda_status ronda_poll(ronda_handle handle, int* done) {
  return ronda::Call([&]() -> ronda::Outcome {
    if (done == nullptr) return ronda::NullArgument("ronda_poll", "done");
    const auto operation = ronda::globals().handles.Find(handle);
    if (!operation) return ronda::UnknownHandle("ronda_poll", handle);
    *done = operation->handle->done() ? 1 : 0;
    return {};
  });
}

ronda_status ronda_synchronize(ronda_handle handle) {
  return ronda::Call([&] {
    const auto operation = ronda::globals().handles.Find(handle);
    if (!operation) return ronda::UnknownHandle("ronda_synchronize", handle);
    return ronda::Failure(operation->handle->Wait(), ronda::Answer::kCompletion);
  });
}

ronda_status ronda_allgather_output(ronda_handle handle, const void** data, int64_t* first_dim, int64_t* first_dims) {
  return ronda::Call([&] { return ronda::AllgatherOutput(handle, data, first_dim, first_dims); });
}

ronda_status ronda_release(ronda_handle handle) {
  return ronda::Call([&]() -> ronda::Outcome {
    const auto operation = ronda::globals().handles.Remove(handle);
    if (!operation) return ronda::UnknownHandle("ronda_release", handle);
    static_cast<void>(operation->handle->Wait());  // its error is for ronda_synchronize() to tell
    return {};
  });
}
