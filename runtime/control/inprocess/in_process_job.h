// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_JOB_H_
#define RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_JOB_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/group.h"
#include "runtime/base/mutex.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/control/control_plane.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

// The state that ranks share if they are threads of one process: mailboxes, the first failure, and meetings. A meeting
// is a call that all members of a group make together.
//
// Thread-safe. Each control plane and communicator of the job shares the ownership of this object, so the object
// outlives them all.
class InProcessJob {
 public:
  struct Options {
    int size = 1;
    std::string hostname = "localhost";
  };

  explicit InProcessJob(Options options);

  int size() const { return options_.size; }
  const std::shared_ptr<FlightBoard>& flights() const { return flights_; }

  // The ControlPlane operations, on behalf of `rank`.
  absl::Status SendToCoordinator(RankId rank, absl::string_view payload);
  absl::Status Broadcast(absl::string_view payload);
  absl::StatusOr<ControlPlane::Inbox> Receive(RankId rank);
  void Wait(RankId rank, absl::Time deadline);
  void Wake(RankId rank);
  void RequestUnlock(uint64_t schedule);
  void Fail(RankId rank, const absl::Status& failure);
  absl::Status failure() const;
  void Depart(RankId rank);
  // Must be called when the control plane of `rank` is destroyed.
  void Leave(RankId rank);

  // One member's contribution to a meeting.
  struct Post {
    uint64_t meeting;              // the same number on every member, and never used twice
    const Group* group = nullptr;  // the members; nullptr: all ranks
    RunningCollective running;     // for errors; `self` is the member
    const void* arguments;         // the call's arguments, of a type that the caller knows
  };

  // Waits until every member of the meeting has posted. Then runs `work` with the arguments of all members, in the
  // order of the group, and returns when every member's `work` has returned. So when Meet has returned, no other member
  // uses `post.arguments` any more. Meetings of disjoint groups do not wait for each other.
  //
  // Errors: the job's failure; ABORTED if a missing member has departed; DEADLINE_EXCEEDED, naming the missing member
  // and the label; the error of `work`. If the error does not come from `work`, `work` has not run.
  using Work = absl::FunctionRef<absl::Status(absl::Span<const void* const> arguments)>;
  absl::Status Meet(const Post& post, Work work);

 private:
  struct Member {
    ControlPlane::Inbox inbox;
    bool woken = false;
    bool departed = false;
    CondVar has_woken;  // one per rank, so that a message to one rank does not wake all ranks' threads
  };
  struct Meeting {
    std::vector<RankId> ranks;
    std::vector<const Post*> posts;      // by position; nullptr: has not arrived
    std::vector<const void*> arguments;  // the arguments of all members; constant once all have arrived
    int missing = 0;                     // members that have not arrived
    int working = 0;                     // members that have not done their work
    int present = 0;                     // members that have not returned
  };

  Peer PeerOf(RankId rank) const;
  void WakeLocked(Member& member) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Meeting& MeetingOfLocked(const Post& post) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds `post` to its meeting, and waits for all other members.
  absl::StatusOr<Meeting*> GatherLocked(const Post& post) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits until all other members have arrived. Errors: the reason to stop waiting.
  absl::Status WaitForOthersLocked(const Meeting& meeting, const Post& post) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void MakeLateCallLocked(LateCall& call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::shared_ptr<FlightBoard> flights_;

  mutable Mutex mu_;
  CondVar meetings_changed_;  // also when a rank departs, or the job fails
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  uint64_t unlock_requested_ ABSL_GUARDED_BY(mu_) = 0;  // the highest schedule whose unlocking has been requested
  absl::Status meeting_error_ ABSL_GUARDED_BY(mu_);     // the first failed meeting's error; after it all meetings fail
  std::map<uint64_t, Meeting> meetings_ ABSL_GUARDED_BY(mu_);  // meetings that have not ended, by number
};

// The control plane of one rank of an InProcessJob. Thread-safe, like the job.
class InProcessControlPlane : public ControlPlane {
 public:
  InProcessControlPlane(std::shared_ptr<InProcessJob> job, RankId rank) : job_(std::move(job)), rank_(rank) {}
  ~InProcessControlPlane() override { job_->Leave(rank_); }

  absl::Status SendToCoordinator(absl::string_view payload) override { return job_->SendToCoordinator(rank_, payload); }
  absl::Status Broadcast(absl::string_view payload) override;
  absl::StatusOr<Inbox> Receive() override { return job_->Receive(rank_); }
  void Wait(absl::Time deadline) override { job_->Wait(rank_, deadline); }
  void Wake() override { job_->Wake(rank_); }
  void RequestUnlock(uint64_t schedule) override { job_->RequestUnlock(schedule); }
  void Fail(const absl::Status& failure) override { job_->Fail(rank_, failure); }
  absl::Status failure() const override { return job_->failure(); }
  void Depart() override { job_->Depart(rank_); }

 private:
  const std::shared_ptr<InProcessJob> job_;
  const RankId rank_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_JOB_H_
