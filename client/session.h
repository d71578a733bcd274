// SPDX-License-Identifier: Apache-2.0

// Defines a rank's part in a job as the C ABI uses it, the ranks that are threads of the process, and the submissions
// that need no name from the caller.
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

// Numbers the operations that callers do not name, for instance barriers, so that a rank's n-th operation matches the
// n-th operation of every other rank.
//
// If an operation failed because some rank was late, its number is used again. The late rank's operation then matches
// the next operation of the ranks that have waited, and not the operation that has failed on these ranks.
//
// Thread-compatible.
class NumberSequence {
 public:
  // Returns the number for the next operation.
  uint64_t Next();

  // Returns the greatest number of an operation on which ranks have disagreed since the function's previous call.
  // If ranks have disagreed on no operation, returns nothing.
  std::optional<uint64_t> TakeDisagreement() { return std::exchange(disagreement_, std::nullopt); }

  // Returns the smallest number of an operation in flight. If no operation is in flight, returns the next number.
  uint64_t oldest() const { return in_flight_.empty() ? next_ : in_flight_.front().number; }

  // Stores `operation`, which is in flight under the number that Next() has returned. Until Record() is called, Next()
  // keeps returning this number. Record() allocates no memory, because an operation in flight cannot be taken back if
  // memory is exhausted.
  // REQUIRES: Next() has been called since the last Record().
  void Record(std::shared_ptr<const Handle> operation);

 private:
  struct InFlight {
    uint64_t number;
    std::shared_ptr<const Handle> operation;
  };

  // The number of operations in flight, from the oldest, that each call checks for their end. Checking all operations
  // in each call would take too long.
  static constexpr size_t kLookedAt = 64;

  // Processes the operations that have ended since the last call.
  void Settle();
  void Settle(const InFlight& ended);

  uint64_t next_ = 0;                // never used so far
  std::set<uint64_t> again_;         // numbers to be used again, before next_
  std::vector<InFlight> in_flight_;  // in ascending order
  std::optional<uint64_t> disagreement_;
};

// The numbers of a rank's operations on tensors without a name, in one process set.
struct UnnamedCalls {
  NumberSequence numbers;
  CallOrder order;
};

// A rank's part in a job, from ronda_init() to ronda_shutdown(), or while the body of ronda_run_threads() runs. A
// session has the runtime, and numbers the operations that callers do not name.
//
// Thread-safe.
class Session {
 public:
  // The maximum number of operations of one kind in flight. A kind is, for example, barriers of one process set, or
  // tensors from rank a to rank b with one tag.
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

  // Returns whether Submit() creates the operation's name, which it does for sends, receives, and tensors without a
  // name.
  static bool Names(const Submission& submission) {
    return submission.request.op == OpType::kSendRecv || submission.request.name.empty();
  }

  // Submits an operation for a caller of the C ABI. A send or receive gets the next number of its kind on this rank. A
  // tensor without a name gets this rank's next number in the process set (call_order.h), or becomes the next call of
  // the set's lane, if the set has a lane for it (caller_lane.h). Other operations are submitted unchanged.
  // The content of `*submission` is lost. Errors: the errors of SubmitNumbered and CallerLane::Submit; ALREADY_EXISTS
  // if CallOrder::kRemembered - 1 tensors without a name are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // Submits this rank's next operation of the kind request.name, and appends the operation's number to the name.
  // Errors: the errors of Runtime::Submit; ALREADY_EXISTS if kConcurrentOfAKind operations of the kind are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumbered(Submission submission);

  // Refuses the operation that `refusal` (RefusalSubmission) describes, so that it fails on the other ranks. The
  // operation is the rank's next operation without a name in the process set, or its next message of a kind. Refuse()
  // does not wait for other ranks. Errors: as Submit.
  absl::Status Refuse(Submission refusal) { return Submit(&refusal).status(); }

  // Forgets the numbers of process sets that have been removed.
  void ForgetRemovedSets();

  // Submits a join. A rank that has joined does not count the later operations of the other ranks. For this reason the
  // numbers of the process set start again on every rank once all ranks have joined.
  // Errors: the errors of Runtime::Submit.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitJoin(const Submission& submission);

  // Returns how many times all ranks have joined. Each time all ranks have joined, the ranks restart their counts of
  // operations without names. Errors: INVALID_ARGUMENT if this rank has joined and other ranks have not joined yet.
  absl::StatusOr<uint64_t> CountJoins();

  // The agreement lives as long as a caller keeps the pointer, even after the session has ended.
  std::shared_ptr<StopAgreement> stop_agreement() const { return stop_agreement_; }
  // Returns the agreement that ronda_elastic_poll() uses.
  std::shared_ptr<StopAgreement> change_agreement() const { return change_agreement_; }

 private:
  absl::StatusOr<std::shared_ptr<Handle>> SubmitUnnamed(Submission* submission);
  // Submits the operation to the lane, or to the engine in the order of the lane's calls.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitInLane(CallerLane& lane, Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitMessage(Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumberedLocked(Submission submission)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns whether this receive takes messages in the order of their arrival. A receive from any rank does so. While a
  // receive that does so is in flight, all later receives with its tag also do so. `name` is ReceiveName().
  bool IsInOrderLocked(const TensorRequest& request, const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Restarts the numbers of a process set if its join has ended meanwhile.
  void SettleJoinLocked(ProcessSetId set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<Runtime> owned_;  // null if the caller owns the runtime
  Runtime& runtime_;
  const WaitLimits limits_;
  const std::shared_ptr<StopAgreement> stop_agreement_ = std::make_shared<StopAgreement>();
  const std::shared_ptr<StopAgreement> change_agreement_ = std::make_shared<StopAgreement>(kChangeFlag);
  Mutex mu_;
  using Kind = std::pair<ProcessSetId, std::string>;  // a process set and a name
  std::map<Kind, NumberSequence> sequences_ ABSL_GUARDED_BY(mu_);
  // Receives that take messages in the order of arrival, by ReceiveName(), and that have not yet been matched to a
  // sender.
  std::map<Kind, std::vector<std::shared_ptr<const Handle>>> receives_ ABSL_GUARDED_BY(mu_);
  std::map<ProcessSetId, UnnamedCalls> unnamed_ ABSL_GUARDED_BY(mu_);
  // This rank's last join of each process set, until SettleJoinLocked() has handled the end of the join. Null means
  // that no join was submitted.
  std::map<ProcessSetId, std::shared_ptr<const Handle>> joins_ ABSL_GUARDED_BY(mu_);
  uint64_t joins_of_all_ ABSL_GUARDED_BY(mu_) = 0;  // ended joins of the set of all ranks
};

// Keeps the ranks that are threads of this process, by number, and the rank for which each thread acts.
//
// Thread-safe.
class RankContexts {
 public:
  // The rank for which a thread acts. The pointer is weak, so it has expired if the thread outlives its rank.
  struct Role {
    ronda_context id = 0;  // 0: the process's own
    std::weak_ptr<Session> session;
  };

  // While a Scope lives, the thread that made it acts for a new session, and other threads may also act for this
  // session. The destructor waits until no other thread holds the session. A thread has at most one Scope.
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

  // While a Visit lives, the thread that made it acts for `role`, which may be the role of another thread.
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

  // Makes the calling thread act for the rank with the number `id`, or for the process's own rank if `id` is 0.
  // Returns false if the rank does not exist, or exists no more.
  bool MakeCurrent(ronda_context id);

  // Returns the number of the rank for which the calling thread acts, or 0 for the process's own rank.
  static ronda_context Current();

  // Ends the calling thread's role, so that it acts for the process's own rank again.
  static void Leave();

  // Returns the session of the rank for which the calling thread acts, or null if the rank's scope has ended.
  // REQUIRES: Current() is not 0.
  static std::shared_ptr<Session> CurrentSession();

 private:
  mutable Mutex mu_;
  ronda_context next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<ronda_context, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

// Make the submission of a barrier or of a join. Session numbers these operations by their names, like sends and
// receives. `timeout_s` has the same meaning as in ronda_monitored_barrier().
absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller);
// `absent` may hold a value without an enumerator, and is not read as an enum.
absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent);

// Make the submission that creates a process set. Either all ranks of the job make this submission, or only the members
// of the set. If the members create the set, the submission's name consists of the ranks and `tag`, which may be null.
absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count);
Submission AddProcessSetSubmission(std::vector<RankId> ranks);
absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag);

// Makes the submission that removes a process set. The ranks of the set `by` must submit it (Runtime::RemoversOf).
Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by);

// Makes the same submission as RemoveProcessSetSubmission(), but for a rank that does not wait for the other ranks.
// Ronda does not report ranks that submit the removal late.
Submission UnawaitedRemovalSubmission(ronda_process_set id, ProcessSetId by, const Caller& caller);

}  // namespace ronda

#endif  // RONDA_CLIENT_SESSION_H_
