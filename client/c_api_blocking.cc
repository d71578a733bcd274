// The C ABI on top of the runtime: operations that wait, and leave no handle.

#pragma GCC visibility push(default)
#include "client/ronda.h"
#pragma GCC visibility pop

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/arguments.h"
#include "client/c_api_support.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// The session that a blocking call acts for. It gives the session up before it waits in a way that needs no runtime: a
// rank that is a thread may be about to end because its body threw, and its end waits for who is in its session.
class BlockingCall {
 public:
  explicit BlockingCall(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  const Session& session() const { return *session_; }

  // Submits, and waits for the end of the operation, whose handle this is.
  // Errors: the submission's.
  absl::StatusOr<std::shared_ptr<Handle>> Run(const Submission& submission) {
    const bool is_numbered = submission.request.op == OpType::kSendRecv;
    if (session_->owns_runtime() && !is_numbered) return session_->runtime().Run(submission);
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<Handle> handle, session_->Submit(submission));
    session_.reset();
    handle->Wait().IgnoreError();
    return handle;
  }

  // The same for a group.
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

// Runs `body` on a call.
template <typename Body>
ronda_status CallAndWait(const Body& body) {
  return Call([&]() -> Outcome {
    std::shared_ptr<Session> session = CurrentSession();
    if (session == nullptr) return NotInitialized();
    BlockingCall call(std::move(session));
    return body(call);
  });
}

template <typename Args>
ronda_status RunOne(const Args* args) {
  return CallAndWait([&](BlockingCall& call) -> Outcome {
    Submission& submission = scratch().submission;
    absl::Status status = ToSubmission(args, call.session().caller(), &submission);
    if (!status.ok()) return Failure(status, Answer::kSubmission);
    const absl::StatusOr<std::shared_ptr<Handle>> handle = call.Run(submission);
    if (!handle.ok()) return Failure(handle.status(), Answer::kSubmission);
    return Failure((*handle)->Wait(), Answer::kCompletion);
  });
}

// Of the group all have the same error, or none has; but for the devices', which may come to one bucket and not to the
// next.
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

ronda_status ronda_allreduce(const ronda_allreduce_args* args) { return ronda::RunOne(args); }

ronda_status ronda_reduce(const ronda_reduce_args* args) { return ronda::RunOne(args); }

ronda_status ronda_broadcast(const ronda_broadcast_args* args) { return ronda::RunOne(args); }

ronda_status ronda_send(const ronda_send_args* args) { return ronda::RunOne(args); }

ronda_status ronda_recv(const ronda_recv_args* args) { return ronda::RunOne(args); }

ronda_status ronda_grouped_allreduce(const ronda_allreduce_args* args, size_t count, const char* group) {
  return ronda::RunGroup(args, count, group);
}
