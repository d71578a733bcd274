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
// Members are numbered in the order of the caller's list. They are submitted in the group's own order, which is at
// first the same; LearnOrder() and Combine() change it. A position is a member's place in that order.
//
// Announce is thread-safe. The other functions are called when no other function is running. Memory ordering: the
// counter of a batch is decremented with acquire and release. So the thread that brings the counter to zero sees
// everything that other threads had written to the inputs of their members. The submission makes these writes visible
// to the runtime.
class PreparedGroup {
 public:
  // `members` belong to `session`, which the group does not keep alive. `name` is for messages. A member without
  // buffers gets them from AnnounceAt().
  // Errors: the errors of Runtime::Check, except that a member may have no buffers; INVALID_ARGUMENT if two members
  // have the same name.
  static absl::StatusOr<std::unique_ptr<PreparedGroup>> Create(const std::shared_ptr<Session>& session,
                                                               std::string name, std::vector<Submission> members);

  // Waits for the members that have been submitted, also on the device.
  ~PreparedGroup();
  PreparedGroup(const PreparedGroup&) = delete;
  PreparedGroup& operator=(const PreparedGroup&) = delete;

  // The next step submits each member by itself. Later steps submit the members in the order in which that step
  // announced them.
  // Errors: INVALID_ARGUMENT if a step is under way.
  Outcome LearnOrder();
  // These members become the tensor group `name`, which is a batch. They run together, or none of them runs.
  // Errors: INVALID_ARGUMENT if a step is under way, a member does not exist or is in a tensor group already, or
  // another tensor group has the name; CANCELLED if the group's job has ended.
  Outcome Combine(absl::Span<const size_t> members, const std::string& name);

  // Whether `session`, which may be null, is the group's session.
  bool BelongsTo(const std::shared_ptr<Session>& session) const {
    return session != nullptr && session_.lock() == session;
  }

  // The input of member `index` is complete.
  // Errors: INVALID_ARGUMENT if the member does not exist, has no buffer, or has been announced in this step; the
  // errors of a submission.
  Outcome Announce(size_t index);
  // As Announce(), for a member that is reduced in place at `data`, in this step and until a later call moves it again.
  // `stream`, or else the member's previous stream, has been given the work that fills the input. INVALID_ARGUMENT also
  // if `data` is null and the member has elements, or if a member in host memory gets a stream.
  Outcome AnnounceAt(size_t index, void* data, std::optional<void*> stream);

  // Waits for all members and begins the next step. Errors: INVALID_ARGUMENT, without any change, if a member was not
  // announced. Otherwise the error of the first member whose submission or operation failed.
  Outcome Wait();
  // As Wait(), but if a member is still in flight when MonotonicTime() reaches `deadline`, `*ended` becomes false and
  // nothing changes.
  Outcome WaitUntil(absl::Duration deadline, bool* ended);
  // As Wait() and WaitUntil(), with OrderStream() instead of Handle::Wait.
  Outcome OrderBefore(void* stream);
  Outcome OrderBeforeUntil(void* stream, absl::Duration deadline, bool* ended);
  // As OrderBefore(), but each member's own stream waits. Keeps the handles of members in the memory of a GPU: the next
  // call returns errors of the device that are known by then, before all other errors. Finish() waits for the device.
  Outcome OrderBeforeOwnStreams();
  Outcome Finish() const;

  // Ends the step with the members that have been announced. Submits those whose batch lacks a neighbour, and begins
  // the next step. `*handles` gets an entry per member, null if the member was not announced.
  // Errors: the first error of a submission. Then nothing is in flight, and `*handles` is empty.
  Outcome Detach(std::vector<std::shared_ptr<Handle>>* handles);

  // The first member in which the last Wait() has found an overflow.
  std::optional<size_t> overflowed() const { return overflowed_; }
  size_t size() const { return places_.size(); }

 private:
  // Aligned, so that threads that announce members of different batches do not write to the same cache line.
  struct alignas(64) Batch {
    size_t begin = 0;  // the positions of the batch's members
    size_t end = 0;
    std::atomic<size_t> missing{0};  // members that have not been announced in this step
    // Written by the thread that submits the batch:
    absl::Status status;
    std::vector<std::shared_ptr<Handle>> handles;
  };

  // Where a member is.
  struct Place {
    size_t position = 0;
    size_t batch = 0;
    bool has_buffer = true;  // written by the thread that announces the member
  };

  // Ends the wait for a member, with its status.
  using WaitFn = absl::FunctionRef<absl::Status(size_t member, const std::shared_ptr<Handle>& handle)>;

  PreparedGroup(const std::shared_ptr<Session>& session, std::string name, std::vector<Submission> members);

  Outcome Invalid(absl::string_view what) const;
  Outcome InvalidMember(size_t index, absl::string_view what) const;
  Outcome NotBetweenSteps() const;
  // Null, and `*ended` set to the error, if the group's job has ended.
  std::shared_ptr<Session> SessionOr(absl::Status* ended) const;
  Submission& At(size_t index) { return members_[places_[index].position]; }
  const Submission& At(size_t index) const { return members_[places_[index].position]; }
  std::vector<size_t> Positions() const;  // by member
  // Sorts the members by `keys`, which has one of each member, and cuts them into batches. The members of a tensor
  // group follow each other, at the position of the last of them. REQUIRES: no member is announced.
  void Arrange(const std::vector<size_t>& keys);
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
  // Ends the step: calls `wait` for each member, in the order of the list.
  Outcome EndStep(WaitFn wait);

  const std::weak_ptr<Session> session_;  // weak, because the end of a rank that is a thread waits for its release
  const std::string name_;
  // By position. The thread that announces a member writes its buffers.
  std::vector<Submission> members_;
  std::vector<size_t> order_;  // the members' numbers
  // By member:
  std::vector<Place> places_;
  std::vector<std::atomic<bool>> announced_;  // in this step
  std::vector<size_t> turns_;                 // while the order is learned: in which turn it was announced in this step
  std::vector<Batch> batches_;
  bool learns_ = false;
  std::atomic<size_t> next_turn_{0};
  std::vector<std::shared_ptr<Handle>> on_device_;  // the members for which their own streams were made to wait
  std::optional<size_t> overflowed_;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_PREPARED_GROUP_H_
