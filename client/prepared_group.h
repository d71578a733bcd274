// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_CLIENT_PREPARED_GROUP_H_
#define RONDA_CLIENT_PREPARED_GROUP_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/c_api_support.h"
#include "client/session.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// Submissions that are checked once, announced separately in each step, and waited for together. They are submitted in
// batches of neighbours. The thread that announces the last member of a batch submits the batch.
//
// Announce is thread-safe. The other functions are called when no other function is running. Memory ordering: the
// counter of a batch is decremented with acquire and release. So the thread that brings it to zero sees everything that
// other threads had written to the inputs of their members, and passes it on with the submission.
class PreparedGroup {
 public:
  // `members` belong to `session`, which the group does not keep alive. `name` is for messages.
  // Errors: INVALID_ARGUMENT: those of Runtime::Check; two members with the same name.
  static absl::StatusOr<std::unique_ptr<PreparedGroup>> Create(const std::shared_ptr<Session>& session,
                                                               std::string name, std::vector<Submission> members);

  // Waits for the members that have been submitted.
  ~PreparedGroup();
  PreparedGroup(const PreparedGroup&) = delete;
  PreparedGroup& operator=(const PreparedGroup&) = delete;

  // The input of member `index` is complete.
  // Errors: INVALID_ARGUMENT if the member does not exist, or has been announced in this step; those of a submission.
  Outcome Announce(size_t index);
  // As Announce(), for a member that is reduced in place at `data`, in this step and until a later call moves it again.
  // `stream`, or else the member's previous stream, has been given the work that fills the input. INVALID_ARGUMENT also
  // if `data` is null and the member has elements, or if a member in host memory gets a stream.
  Outcome AnnounceAt(size_t index, void* data, std::optional<void*> stream);

  // Waits for all members and begins the next step. Errors: INVALID_ARGUMENT, without any change, if a member was not
  // announced; else the first error of a submission or an operation.
  Outcome Wait();
  // As Wait(), but if a member is still in flight when MonotonicTime() reaches `deadline`, `*ended` becomes false and
  // nothing changes.
  Outcome WaitUntil(absl::Duration deadline, bool* ended);
  // As Wait() and WaitUntil(), with OrderStream() instead of Handle::Wait.
  Outcome OrderBefore(void* stream);
  Outcome OrderBeforeUntil(void* stream, absl::Duration deadline, bool* ended);

  // Ends the step with the members that have been announced. Submits those whose batch lacks a neighbour, and begins
  // the next step. `*handles` gets an entry per member, null if the member was not announced.
  // Errors: the first error of a submission. Then nothing is in flight, and `*handles` is empty.
  Outcome Detach(std::vector<std::shared_ptr<Handle>>* handles);

  // Whether the last Wait() has found an overflow.
  bool found_overflow() const { return found_overflow_; }
  size_t size() const { return members_.size(); }

 private:
  // Aligned, so that threads that announce members of different batches do not write to the same cache line.
  struct alignas(64) Batch {
    size_t begin = 0;  // the batch's members
    size_t end = 0;
    std::atomic<size_t> missing{0};  // members that have not been announced in this step
    // Written by the thread that submits the batch:
    absl::Status status;
    std::vector<std::shared_ptr<Handle>> handles;
  };

  PreparedGroup(const std::shared_ptr<Session>& session, std::string name, std::vector<Submission> members);

  Outcome Invalid(absl::string_view what) const;
  // Calls `prepare` for the member before the rest of the batch, or the runtime, can see the member.
  Outcome AnnounceAfter(size_t index, absl::FunctionRef<void(Submission&)> prepare);
  Outcome Submit(Batch& batch) {
    return SubmitAll(batch, absl::MakeConstSpan(members_).subspan(batch.begin, batch.end - batch.begin));
  }
  // Submits the announced members of a batch that was not submitted because other members are missing.
  Outcome SubmitAnnounced(Batch& batch);
  Outcome SubmitAll(Batch& batch, absl::Span<const Submission> members);
  // Forgets which members have been announced.
  void BeginStep();
  // INVALID_ARGUMENT if a member is missing.
  Outcome CheckComplete() const;
  // Whether `has_ended` returns true for the handles of all members. Stops at the first handle for which it returns
  // false. Errors: CheckComplete()'s.
  Outcome CheckEnded(absl::FunctionRef<bool(const Handle&)> has_ended, bool* ended) const;
  // Ends the step: calls `wait` for each handle.
  Outcome EndStep(absl::FunctionRef<absl::Status(const Handle&)> wait);

  const std::weak_ptr<Session> session_;  // weak, because the end of a rank that is a thread waits for its release
  const std::string name_;
  std::vector<Submission> members_;           // the thread that announces a member writes its buffers
  std::vector<std::atomic<bool>> announced_;  // per member: announced in this step
  std::vector<size_t> batch_of_;              // per member: the index of its batch
  std::vector<Batch> batches_;
  bool found_overflow_ = false;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_PREPARED_GROUP_H_
