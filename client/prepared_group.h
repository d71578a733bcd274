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

// Submissions that are checked once, announced one by one in each step, and waited for together. Each batch of
// neighbouring members is submitted as a whole, by the thread that announces the batch's last missing member.
//
// Members are numbered as in the caller's list, but submitted in the group's own order. At first this is the order of
// the list; LearnOrder() and Combine() change it. A member's position is its index in the group's own order.
//
// Announce() is thread-safe. REQUIRES for all other functions: no other function is running. Memory ordering: a batch's
// counter is decremented with acquire-release ordering, so the thread that brings the counter to zero sees all input
// data that other threads have written for their members. Submitting the batch makes that data visible to the runtime.
class PreparedGroup {
 public:
  // `members` belong to `session`, which the group does not keep alive. `name` is the group's name in error messages. A
  // member may have no buffers until AnnounceAt() sets them.
  // Errors: the errors of Runtime::Check, except that a member may have no buffers; INVALID_ARGUMENT if two members
  // have the same name.
  static absl::StatusOr<std::unique_ptr<PreparedGroup>> Create(const std::shared_ptr<Session>& session,
                                                               std::string name, std::vector<Submission> members);

  // Waits until all submitted members have completed, including their work on the device.
  ~PreparedGroup();
  PreparedGroup(const PreparedGroup&) = delete;
  PreparedGroup& operator=(const PreparedGroup&) = delete;

  // Until a step has announced all members, the group submits each member individually, or with its tensor group. In
  // later steps, it submits the members in the order of their announcements in that step.
  // Errors: INVALID_ARGUMENT if a step is under way.
  Outcome LearnOrder();
  // Combines these members into the tensor group `name`, which forms one batch. A tensor group runs as a whole or not
  // at all. Errors: INVALID_ARGUMENT if a step is under way, a member does not exist or is already in a tensor group,
  // or another tensor group has the same name; CANCELLED if the group's job has ended.
  Outcome Combine(absl::Span<const size_t> members, const std::string& name);

  // Returns whether `session`, which may be null, is the group's session.
  bool BelongsTo(const std::shared_ptr<Session>& session) const {
    return session != nullptr && session_.lock() == session;
  }

  // Announces that the input of member `index` is complete.
  // Errors: INVALID_ARGUMENT if the member does not exist, has no buffer, or has been announced in this step; the
  // errors of a submission.
  Outcome Announce(size_t index);
  // Like Announce(), but first sets the member's buffer to `data`; from now on the member is reduced in place there.
  // `stream` is the stream that fills the input; nullopt keeps the member's previous stream. Also returns
  // INVALID_ARGUMENT if `data` is null and the member has elements, or if a member in host memory gets a stream.
  Outcome AnnounceAt(size_t index, void* data, std::optional<void*> stream);

  // Waits for all members and begins the next step. Errors: INVALID_ARGUMENT, with no effect, if a member was not
  // announced. Otherwise returns the error of the first member whose submission or operation failed.
  Outcome Wait();
  // Like Wait(), but if a member is still in flight when MonotonicTime() reaches `deadline`, gives up: sets `*ended` to
  // false and changes nothing else.
  Outcome WaitUntil(absl::Duration deadline, bool* ended);
  // Like Wait() and WaitUntil(), but call OrderStream() instead of Handle::Wait().
  Outcome OrderBefore(void* stream);
  Outcome OrderBeforeUntil(void* stream, absl::Duration deadline, bool* ended);
  // Like OrderBefore(), but makes each member's own stream wait for the member. Keeps the handles of members whose
  // buffers are in GPU memory. The next OrderBeforeOwnStreams() returns the device errors known by then, before the
  // errors of its own step. Finish() waits for the device.
  Outcome OrderBeforeOwnStreams();
  Outcome Finish() const;

  // Ends the step with the members that have been announced so far. Submits the announced members of incomplete batches
  // too, and begins the next step. `*handles` gets one entry per member, which is null if the member was not announced.
  // Errors: the first error of a submission. After an error nothing is in flight, and `*handles` is empty.
  Outcome Detach(std::vector<std::shared_ptr<Handle>>* handles);

  // Returns the first member for which the last Wait() found an overflow.
  std::optional<size_t> overflowed() const { return overflowed_; }
  size_t size() const { return places_.size(); }

 private:
  // Aligned, so that threads that announce members of different batches do not write to the same cache line.
  struct alignas(64) Batch {
    size_t begin = 0;  // the positions of the batch's members
    size_t end = 0;
    std::atomic<size_t> missing{0};  // members that have not been announced in this step
    // The thread that submits the batch writes the following fields:
    absl::Status status;
    std::vector<std::shared_ptr<Handle>> handles;
  };

  // The position and the batch of a member.
  struct Place {
    size_t position = 0;
    size_t batch = 0;
    bool has_buffer = true;  // written by the thread that announces the member
  };

  // Waits for a member, and returns its status.
  using WaitFn = absl::FunctionRef<absl::Status(size_t member, const std::shared_ptr<Handle>& handle)>;

  PreparedGroup(const std::shared_ptr<Session>& session, std::string name, std::vector<Submission> members);

  Outcome Invalid(absl::string_view what) const;
  Outcome InvalidMember(size_t index, absl::string_view what) const;
  Outcome NotBetweenSteps() const;
  // Returns the session. If the group's job has ended, returns null, and sets `*ended` to the error.
  std::shared_ptr<Session> SessionOr(absl::Status* ended) const;
  Submission& At(size_t index) { return members_[places_[index].position]; }
  const Submission& At(size_t index) const { return members_[places_[index].position]; }
  std::vector<size_t> Positions() const;  // by member
  // Sorts the members by `keys`, which has one key per member, and cuts them into batches. The members of a tensor
  // group stay together, at the position of their largest key. REQUIRES: no member is announced.
  void Arrange(const std::vector<size_t>& keys);
  // Calls `prepare` on a member, and then announces the member. The runtime, and other threads that submit the batch,
  // read the member only after `prepare` has returned.
  Outcome AnnounceAfter(size_t index, absl::FunctionRef<void(Submission&)> prepare);
  Outcome Submit(Batch& batch) {
    return SubmitAll(batch, absl::MakeConstSpan(members_).subspan(batch.begin, batch.end - batch.begin));
  }
  // Submits the announced members of a batch if other members of the batch are missing.
  Outcome SubmitAnnounced(Batch& batch);
  Outcome SubmitAll(Batch& batch, absl::Span<const Submission> members);
  // Resets the record of which members have been announced.
  void BeginStep();
  // Returns INVALID_ARGUMENT if a member has not been announced.
  Outcome CheckComplete() const;
  // Sets `*ended` to whether `has_ended` returns true for every handle, stopping at the first handle for which it does
  // not. Errors: the errors of CheckComplete().
  Outcome CheckEnded(absl::FunctionRef<bool(const Handle&)> has_ended, bool* ended) const;
  // Ends the step: calls `wait` for each member, in the order of the list.
  Outcome EndStep(WaitFn wait);

  const std::weak_ptr<Session> session_;  // weak, because the end of a rank that is a thread waits for its release
  const std::string name_;
  // The submissions of the members, by position. The thread that announces a member writes that member's buffers.
  std::vector<Submission> members_;
  std::vector<size_t> order_;  // member numbers
  // The next three arrays are indexed by member number:
  std::vector<Place> places_;
  std::vector<std::atomic<bool>> announced_;  // in this step
  std::vector<size_t> turns_;                 // while the order is learned: when each member was announced in this step
  std::vector<Batch> batches_;
  bool learns_ = false;
  std::atomic<size_t> next_turn_{0};
  std::vector<std::shared_ptr<Handle>> on_device_;  // the members for which their own streams were made to wait
  std::optional<size_t> overflowed_;
};

}  // namespace ronda

#endif  // RONDA_CLIENT_PREPARED_GROUP_H_
