// SPDX-License-Identifier: Apache-2.0

// Defines a rank's part in a job as the C ABI sees it, the ranks that are threads of this process, and the submissions
// that Ronda names itself.
#ifndef RONDA_CLIENT_SESSION_H_
#define RONDA_CLIENT_SESSION_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/arguments.h"
#include "client/call_order.h"
#include "client/ronda.h"
#include "client/stop.h"
#include "runtime/base/mutex.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/runtime.h"

namespace ronda {

// Numbers the operations that callers do not name, such as barriers, so that a rank's n-th operation matches the n-th
// operation of every other rank.
//
// If an operation failed because some rank was late, its number is reused. The late rank's operation then matches the
// next operation of the ranks that waited, rather than the one that failed there.
//
// Thread-compatible.
class NumberSequence {
 public:
  // Returns the number for the next operation.
  uint64_t Next();

  // Returns the greatest number of an operation on which ranks have disagreed since the previous call. Returns nothing
  // if there was none.
  std::optional<uint64_t> TakeDisagreement() { return std::exchange(disagreement_, std::nullopt); }

  // Returns the smallest number of an operation in flight, or the next number if there is none.
  uint64_t oldest() const { return in_flight_.empty() ? next_ : in_flight_.front().number; }

  // Stores `operation`, which was submitted with the number that Next() returned. A number is used up only by Record(),
  // so after a failed submission it is given out again. Record() allocates no memory, because an operation in flight
  // could not be cancelled if memory were exhausted.
  // REQUIRES: Next() has been called since the last Record().
  void Record(std::shared_ptr<const Handle> operation);

 private:
  struct InFlight {
    uint64_t number;
    std::shared_ptr<const Handle> operation;
  };

  // The number of operations, starting with the oldest, that each call checks for completion. Checking all operations
  // in flight would take too long.
  static constexpr size_t kLookedAt = 64;

  // Processes the operations that have completed since the last call.
  void Settle();
  void Settle(const InFlight& ended);

  uint64_t next_ = 0;                // never used so far
  std::set<uint64_t> again_;         // numbers to be used again, before next_
  std::vector<InFlight> in_flight_;  // in ascending order
  std::optional<uint64_t> disagreement_;
};

// The numbers of a rank's unnamed operations in one process set.
struct UnnamedCalls {
  NumberSequence numbers;
  CallOrder order;
};

// A rank's part in a job, from ronda_init() to ronda_shutdown(), or while the body of ronda_run_threads() runs. A
// session holds the runtime, and numbers the operations that callers do not name.
//
// Thread-safe.
class Session {
 public:
  // The maximum number of operations of one kind in flight. A kind is, for example, the barriers of one process set, or
  // the tensors from rank a to rank b with one tag.
  static constexpr uint64_t kConcurrentOfAKind = kMessageNumbers;

  // `limits` are the limits that this rank proposes for the job.
  Session(std::unique_ptr<Runtime> runtime, WaitLimits limits)
      : owned_(std::move(runtime)), runtime_(*owned_), limits_(limits) {}
  // The caller owns `runtime`, which must outlive the session.
  Session(Runtime& runtime, WaitLimits limits) : runtime_(runtime), limits_(limits) {}

  Runtime& runtime() const { return runtime_; }
  const Topology& topology() const { return runtime_.topology(); }
  Caller caller() const { return {.rank = topology().rank, .limits = limits_}; }

  // Returns whether the session owns the runtime, so that the runtime lives at least as long as the session.
  bool owns_runtime() const { return owned_ != nullptr; }

  // Returns whether Submit() generates the operation's name, as it does for sends, receives and unnamed tensors.
  static bool Names(const Submission& submission) {
    return submission.request.op == OpType::kSendRecv || submission.request.name.empty();
  }

  // Submits an operation for a caller of the C ABI. A send or receive gets the next number of its kind on this rank. An
  // unnamed tensor gets this rank's next number in the process set (call_order.h) or, if the set has a lane that can
  // run it, becomes the lane's next call (caller_lane.h). Other operations are submitted unchanged.
  // Leaves `*submission` in an unspecified state. Errors: the errors of SubmitNumbered and CallerLane::Submit;
  // ALREADY_EXISTS if CallOrder::kRemembered - 1 unnamed tensors are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // Submits this rank's next operation of kind request.name, and appends the operation's number to the name.
  // Errors: the errors of Runtime::Submit; ALREADY_EXISTS if kConcurrentOfAKind operations of this kind are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumbered(Submission submission);

  // Refuses the operation described by `refusal` (see RefusalSubmission), so that it fails on the other ranks. This can
  // be the operation with a given name, the rank's next unnamed operation in the process set, or its next message of a
  // kind. Does not wait for other ranks. Errors: as Submit.
  absl::Status Refuse(Submission refusal) { return Submit(&refusal).status(); }

  // Drops the numbers of process sets that have been removed.
  void ForgetRemovedSets();

  // Submits a join. While a rank has joined, it does not count the operations of the other ranks. Therefore every rank
  // restarts the numbers of the process set once all ranks have joined.
  // Errors: the errors of Runtime::Submit.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitJoin(const Submission& submission);

  // Returns how many times all ranks have joined. Each time, the ranks restart the numbers of their unnamed operations.
  // Errors: INVALID_ARGUMENT if this rank has joined and others have not.
  absl::StatusOr<uint64_t> CountJoins();

  // The agreement exists as long as a caller holds the pointer, even after the session has ended.
  std::shared_ptr<StopAgreement> stop_agreement() const { return stop_agreement_; }
  // Returns the agreement that ronda_elastic_poll() uses.
  std::shared_ptr<StopAgreement> change_agreement() const { return change_agreement_; }

 private:
  absl::StatusOr<std::shared_ptr<Handle>> SubmitUnnamed(Submission* submission);
  // Submits the operation to the lane, or to the engine in an order consistent with the lane's calls.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitInLane(CallerLane& lane, Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitMessage(Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumberedLocked(Submission submission)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether this receive is matched in order of arrival. This is true of a receive from any rank and, while
  // such a receive is in flight, of all later receives with its tag. `name` is ReceiveName().
  bool IsInOrderLocked(const TensorRequest& request, const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Restarts the numbers of a process set if its join has completed.
  void SettleJoinLocked(ProcessSetId set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<Runtime> owned_;  // null if the caller owns the runtime
  Runtime& runtime_;
  const WaitLimits limits_;
  const std::shared_ptr<StopAgreement> stop_agreement_ = std::make_shared<StopAgreement>();
  const std::shared_ptr<StopAgreement> change_agreement_ = std::make_shared<StopAgreement>(kChangeFlag);
  Mutex mu_;
  using Kind = std::pair<ProcessSetId, std::string>;  // a process set and a name
  std::map<Kind, NumberSequence> sequences_ ABSL_GUARDED_BY(mu_);
  // Receives that are matched in order of arrival and have no sender yet, by ReceiveName().
  std::map<Kind, std::vector<std::shared_ptr<const Handle>>> receives_ ABSL_GUARDED_BY(mu_);
  std::map<ProcessSetId, UnnamedCalls> unnamed_ ABSL_GUARDED_BY(mu_);
  // This rank's last join of each process set, until SettleJoinLocked() has processed its completion. Null means that
  // no join was submitted.
  std::map<ProcessSetId, std::shared_ptr<const Handle>> joins_ ABSL_GUARDED_BY(mu_);
  uint64_t joins_of_all_ ABSL_GUARDED_BY(mu_) = 0;  // ended joins of the set of all ranks
};

// Keeps the ranks that are threads of this process, by number, and the rank for which each thread acts.
//
// Thread-safe.
class RankContexts {
 public:
  // The rank for which a thread acts. The pointer is weak, because a thread may outlive its rank.
  struct Role {
    ronda_context id = 0;  // 0: the process's own
    std::weak_ptr<Session> session;
  };

  // While a Scope exists, the thread that created it acts for a new session, and other threads may also act for it. The
  // destructor waits until no other thread holds the session. A thread has at most one Scope.
  class Scope {
   public:
    Scope(RankContexts* contexts, Runtime& runtime, WaitLimits limits);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RankContexts* const contexts_;
    std::shared_ptr<Session> session_;
    Mutex mu_;
    CondVar left_;
    bool is_left_ ABSL_GUARDED_BY(mu_) = false;  // by all threads
    ronda_context id_;
  };

  // While a Visit exists, the thread that created it acts for `role`, which may be the role of another thread.
  class Visit {
   public:
    explicit Visit(Role role);
    ~Visit();
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

   private:
    Role before_;
  };

  static Role CurrentRole();

  // Makes the calling thread act for the rank with the context `id`, or for the process's own rank if `id` is 0.
  // Returns false if the rank does not exist (any more).
  bool MakeCurrent(ronda_context id);

  // Returns the context of the rank for which the calling thread acts, or 0 for the process's own rank.
  static ronda_context Current();

  // Ends the calling thread's role, so that it acts for the process's own rank again.
  static void Leave();

  // Returns the session of the calling thread's rank, or null if that rank's scope has ended.
  // REQUIRES: Current() is not 0.
  static std::shared_ptr<Session> CurrentSession();

 private:
  mutable Mutex mu_;
  ronda_context next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<ronda_context, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

// Create the submission of a barrier or of a join. Session numbers these operations by their names, like sends and
// receives. `timeout_s` has the same meaning as in ronda_monitored_barrier().
absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller);
// `absent` may hold a value that matches no enumerator, and is not read as an enum.
absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent);

// Create the submission that creates a process set. It is submitted either by all ranks of the job, or only by the
// members of the set. In the second case, its name consists of the ranks and `tag`, which may be null.
absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count);
Submission AddProcessSetSubmission(std::vector<RankId> ranks);
absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag);

// Creates the submission that removes a process set. All ranks of the set `by` must submit it (Runtime::RemoversOf).
Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by);

// Like RemoveProcessSetSubmission(), but for a rank that does not wait for the other ranks. Ronda does not report ranks
// that submit the removal late.
Submission UnawaitedRemovalSubmission(ronda_process_set id, ProcessSetId by, const Caller& caller);

}  // namespace ronda

#endif  // RONDA_CLIENT_SESSION_H_
