#ifndef RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_JOB_H_
#define RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_JOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/mutex.h"
#include "runtime/base/types.h"
#include "runtime/control/control_plane.h"
#include "runtime/control/peer.h"
#include "runtime/monitor/flight_board.h"

namespace ronda {

// What the ranks of a job share that are threads of one process: mailboxes, the first failure, and a meeting point.
//
// Thread-safe. Outlives the control planes and communicators made on it, which share its ownership.
class InProcessJob {
 public:
  struct Options {
    int size = 1;
    std::string hostname = "localhost";
    absl::Duration collective_timeout = absl::InfiniteDuration();  // of the wait for a late rank
  };

  explicit InProcessJob(Options options);

  int size() const { return options_.size; }
  const std::shared_ptr<FlightBoard>& flights() const { return flights_; }

  // The control plane's operations, on behalf of `rank`.
  absl::Status SendToCoordinator(RankId rank, absl::string_view payload);
  absl::Status Broadcast(absl::string_view payload);
  absl::StatusOr<ControlPlane::Inbox> Receive(RankId rank);
  void Wait(RankId rank, absl::Time deadline);
  void Wake(RankId rank);
  void Fail(RankId rank, const absl::Status& failure);
  absl::Status failure() const;
  void Depart(RankId rank);

  // What one rank shows to the others while they meet: for errors, who and what; and the call's arguments, of a type
  // that the caller knows.
  struct Post {
    RankId rank;
    OpType op;
    absl::string_view label;
    const void* arguments;
  };

  // Waits until every rank has posted, runs `work` with all ranks' arguments, in rank order, and returns when every
  // rank's `work` has returned: what a post points to is used only while its Meet is running.
  //
  // Errors: the job's failure; ABORTED if a rank that is waited for has departed; DEADLINE_EXCEEDED naming it and the
  // label. `work` has not run then. Otherwise, what `work` returned.
  using Work = absl::FunctionRef<absl::Status(absl::Span<const void* const> arguments)>;
  absl::Status Meet(const Post& post, Work work);

 private:
  struct Member {
    ControlPlane::Inbox inbox;
    bool woken = false;
    bool departed = false;
    const Post* post = nullptr;  // while the rank waits for the others
  };

  Peer PeerOf(RankId rank) const;
  void WakeAllLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The rank that a meeting waits for, -1 if there is none.
  RankId LateRankLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Why `post` must not wait any longer; OK if it may.
  absl::Status CheckWaitLocked(const Post& post, absl::Time deadline) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::vector<const void*>> GatherLocked(const Post& post) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const std::shared_ptr<FlightBoard> flights_;

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Member> members_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Status meeting_error_ ABSL_GUARDED_BY(mu_);  // of the first meeting that did not come about; no other will
  std::vector<const void*> arguments_ ABSL_GUARDED_BY(mu_);  // of the meeting that is on
  uint64_t opened_ ABSL_GUARDED_BY(mu_) = 0;                 // meetings for which all ranks have arrived
  uint64_t closed_ ABSL_GUARDED_BY(mu_) = 0;                 // meetings in which all ranks have done their work
  int working_ ABSL_GUARDED_BY(mu_) = 0;                     // ranks that have not yet, if opened_ > closed_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_INPROCESS_IN_PROCESS_JOB_H_
