// The group behind ronda_group: allreduces that a program repeats in every step.
#ifndef RONDA_CLIENT_PREPARED_GROUP_H_
#define RONDA_CLIENT_PREPARED_GROUP_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/c_api_support.h"
#include "client/session.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/submission.h"

namespace ronda {

// Submissions that have been checked once, announced one by one in each step, and waited for together. They are
// submitted in batches of neighbours, each by the thread that announces the batch's last member.
//
// Announce is thread-safe; the other functions are called when no other function is running. Memory ordering: the
// counter of a batch is decremented with acquire and release. So the thread that brings it to zero sees what every
// other thread had written to the inputs of its members, and passes that on with the submission.
class PreparedGroup {
 public:
  // The most members of a batch, and their bytes. So much data travels in a fraction of a millisecond: little is lost
  // if it is held back until the last member is ready. The batch's lock and wake-up weigh little on each member.
  static constexpr size_t kBatchMembers = 32;
  static constexpr size_t kBatchBytes = size_t{1} << 20;

  // `members` are of `session`, which the group does not keep. `name` is for messages.
  // Errors: INVALID_ARGUMENT: those of Runtime::Check; two members of one name.
  static absl::StatusOr<std::unique_ptr<PreparedGroup>> Create(const std::shared_ptr<Session>& session,
                                                               std::string name, std::vector<Submission> members);

  // Waits for the members that have been submitted.
  ~PreparedGroup();
  PreparedGroup(const PreparedGroup&) = delete;
  PreparedGroup& operator=(const PreparedGroup&) = delete;

  // The input of member `index` is complete.
  // Errors: INVALID_ARGUMENT: there is no such member, or it has been announced in this step; those of a submission.
  Outcome Announce(size_t index);
  // The same of a member that is reduced in place at `data`, in this step and until it is given another place. Errors
  // also: INVALID_ARGUMENT: `data` is null, but the member has elements.
  Outcome AnnounceAt(size_t index, void* data);

  // Waits for all members and begins the next step. Errors: INVALID_ARGUMENT: a member was not announced, and nothing
  // has changed; else the first error of a submission or an operation.
  Outcome Wait();
  // The same, unless a member is in flight when MonotonicTime() comes to `deadline`: then `*ended` is false, and
  // nothing has changed.
  Outcome WaitUntil(absl::Duration deadline, bool* ended);
  // The same as these two with Handle::OrderBefore in place of Handle::Wait.
  Outcome OrderBefore(void* stream);
  Outcome OrderBeforeUntil(void* stream, absl::Duration deadline, bool* ended);

  // Whether the last Wait() has found an overflow.
  bool found_overflow() const { return found_overflow_; }

 private:
  // Aligned, so that threads that announce members of different batches do not write to one cache line.
  struct alignas(64) Batch {
    size_t begin = 0;  // its members
    size_t end = 0;
    std::atomic<size_t> missing{0};  // members that have not been announced in this step
    // Written by the thread that submits the batch:
    absl::Status status;
    std::vector<std::shared_ptr<Handle>> handles;
  };

  PreparedGroup(const std::shared_ptr<Session>& session, std::string name, std::vector<Submission> members);

  Outcome Invalid(absl::string_view what) const;
  // `prepare` for the member, before the others of its batch, or the runtime, can see it.
  Outcome AnnounceAfter(size_t index, absl::FunctionRef<void(Submission&)> prepare);
  Outcome Submit(Batch& batch);
  // INVALID_ARGUMENT if a member is missing.
  Outcome CheckComplete() const;
  // Whether `has_ended` is true for the handles of all members; the first one that it is not true for is the last
  // asked. Errors: CheckComplete()'s.
  Outcome CheckEnded(absl::FunctionRef<bool(const Handle&)> has_ended, bool* ended) const;
  // Ends the step: `wait` for each handle.
  Outcome EndStep(absl::FunctionRef<absl::Status(const Handle&)> wait);

  const std::weak_ptr<Session> session_;  // weak: the end of a rank that is a thread waits for those that hold it
  const std::string name_;
  std::vector<Submission> members_;           // the buffers of each are written by the thread that announces it
  std::vector<std::atomic<bool>> announced_;  // by member: in this step
  std::vector<size_t> batch_of_;              // by member: its index
  std::vector<Batch> batches_;
  bool found_overflow_ = false;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_PREPARED_GROUP_H_
