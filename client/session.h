// SPDX-License-Identifier: Apache-2.0

// A rank's part in a job, as the C ABI uses it; the ranks that are threads of the process; and the submissions to which
// the caller gives no name.
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

// Numbers the operations that callers do not name, for instance barriers, so that the n-th on a rank matches the n-th
// on every other rank.
//
// If an operation failed because some rank was late, its number is used again. So the late rank matches the next
// operation of the ranks that have waited, not the operation that they have given up.
//
// Thread-compatible.
class NumberSequence {
 public:
  // The number for the next operation.
  uint64_t Next();

  // Returns the greatest number of an operation on which ranks have disagreed since the previous call of this function,
  // if any.
  std::optional<uint64_t> TakeDisagreement() { return std::exchange(disagreement_, std::nullopt); }

  // The smallest number in flight, or else the next number.
  uint64_t oldest() const { return in_flight_.empty() ? next_ : in_flight_.front().number; }

  // The operation with the number that Next() has returned is in flight. Until this call Next() keeps returning that
  // number. Allocates nothing, because an operation in flight cannot be taken back.
  // REQUIRES: Next() has been called since the last Record().
  void Record(std::shared_ptr<const Handle> operation);

 private:
  struct InFlight {
    uint64_t number;
    std::shared_ptr<const Handle> operation;
  };

  // A call checks whether this number of the oldest operations have ended. Checking all operations in each call would
  // take too long.
  static constexpr size_t kLookedAt = 64;

  // Processes the ends of operations since the last call.
  void Settle();
  void Settle(const InFlight& ended);

  uint64_t next_ = 0;                // never used so far
  std::set<uint64_t> again_;         // to be used again, before next_
  std::vector<InFlight> in_flight_;  // in ascending order
  std::optional<uint64_t> disagreement_;
};

// A rank's operations on tensors without a name, in one process set.
struct UnnamedCalls {
  NumberSequence numbers;
  CallOrder order;
};

// A rank's part in a job, from ronda_init() to ronda_shutdown(), or while the body of ronda_run_threads() runs: the
// runtime, and the numbering of the operations that callers do not name.
//
// Thread-safe.
class Session {
 public:
  // The most operations of a kind (barriers of a process set, tensors from a to b with a tag) in flight at the same
  // time.
  static constexpr uint64_t kConcurrentOfAKind = kMessageNumbers;

  // `limits` are the limits that this rank proposes for the job.
  Session(std::unique_ptr<Runtime> runtime, WaitLimits limits)
      : owned_(std::move(runtime)), runtime_(*owned_), limits_(limits) {}
  // The caller owns `runtime`, which must outlive the session.
  Session(Runtime& runtime, WaitLimits limits) : runtime_(runtime), limits_(limits) {}

  Runtime& runtime() const { return runtime_; }
  const Topology& topology() const { return runtime_.topology(); }
  Caller caller() const { return {.rank = topology().rank, .limits = limits_}; }

  // Whether the runtime lives at least as long as the session.
  bool owns_runtime() const { return owned_ != nullptr; }

  // Whether Submit() creates the name: for sends and receives, and for tensors without a name.
  static bool Names(const Submission& submission) {
    return submission.request.op == OpType::kSendRecv || submission.request.name.empty();
  }

  // Submits for a C caller. A send or receive becomes this rank's next of its kind. A tensor without a name becomes
  // this rank's next one in the process set (call_order.h), or the next call of the set's lane, if it has one for the
  // tensor (caller_lane.h). Other operations are unchanged. The content of `*submission` is lost.
  // Errors: as SubmitNumbered; ALREADY_EXISTS if CallOrder::kRemembered - 1 tensors without a name are in flight; as
  // CallerLane::Submit.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // Submits this rank's next operation of the kind in request.name, and appends a number to that name.
  // Errors: Runtime::Submit's; ALREADY_EXISTS if kConcurrentOfAKind are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumbered(Submission submission);

  // Makes the operation fail that `refusal` (RefusalSubmission) stands for. This is the rank's next operation without a
  // name in the process set, or its next message of a kind. Waits for no rank.
  // Errors: as Submit.
  absl::Status Refuse(Submission refusal) { return Submit(&refusal).status(); }

  // Forgets the numbers of process sets that have been removed.
  void ForgetRemovedSets();

  // Submits a join. Ranks that have joined do not count the others' further operations. So once all ranks have joined,
  // the numbers of the process set start again on every rank.
  // Errors: Runtime::Submit's.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitJoin(const Submission& submission);

  // The number of times that all ranks have joined. After each, ranks restart their counts of operations without names.
  // Errors: INVALID_ARGUMENT if this rank has joined and others have not yet.
  absl::StatusOr<uint64_t> CountJoins();

  // Lives as long as a caller keeps it, also after the session.
  std::shared_ptr<StopAgreement> stop_agreement() const { return stop_agreement_; }
  // The agreement of ronda_elastic_poll().
  std::shared_ptr<StopAgreement> change_agreement() const { return change_agreement_; }

 private:
  absl::StatusOr<std::shared_ptr<Handle>> SubmitUnnamed(Submission* submission);
  // Submits to the lane or, in the lane's order, to the engine.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitInLane(CallerLane& lane, Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitMessage(Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumberedLocked(Submission submission)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether this receive takes messages in the order of their arrival. It does if it is from any rank, or if a receive
  // with its tag is in flight that takes messages in this order. `name` is ReceiveName().
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
  // Receives in order of arrival, by ReceiveName(), that are not yet treated as receives from their senders.
  std::map<Kind, std::vector<std::shared_ptr<const Handle>>> receives_ ABSL_GUARDED_BY(mu_);
  std::map<ProcessSetId, UnnamedCalls> unnamed_ ABSL_GUARDED_BY(mu_);
  // This rank's last join of each process set, until it is settled; null: not submitted.
  std::map<ProcessSetId, std::shared_ptr<const Handle>> joins_ ABSL_GUARDED_BY(mu_);
  uint64_t joins_of_all_ ABSL_GUARDED_BY(mu_) = 0;  // ended joins of the set of all ranks
};

// The ranks that are threads of this process, by number; and the rank for which each thread acts.
//
// Thread-safe.
class RankContexts {
 public:
  // The rank for which a thread acts. The pointer is weak: a thread that outlives its rank finds it expired.
  struct Role {
    ronda_context id = 0;  // 0: the process's own
    std::weak_ptr<Session> session;
  };

  // Until it is destroyed, the calling thread acts for `session`, and other threads may also do so. The destructor
  // waits until no other thread holds the session. A thread has at most one Scope.
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

  // Until it is destroyed, the calling thread acts for `role`, which may be another thread's.
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

  // Makes the calling thread act for the rank with this number; 0: for the process's own rank.
  // False if the rank does not exist (any more).
  bool MakeCurrent(ronda_context id);

  // The rank for which the calling thread acts; 0: the process's own.
  static ronda_context Current();

  // The calling thread no longer acts for any rank.
  static void Leave();

  // The session of that rank; null if its scope has ended.
  // REQUIRES: Current() is not 0.
  static std::shared_ptr<Session> CurrentSession();

 private:
  mutable Mutex mu_;
  ronda_context next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<ronda_context, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

// A barrier or a join. Their names are given, as for send and receive. `timeout_s` as ronda_monitored_barrier().
absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller);
// `absent` may hold a value without an enumerator, and is not read as an enum.
absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent);

// The creation of a set by all ranks of the job, or by the set's members. If the members create it, the name consists
// of the ranks and `tag`, which may be null.
absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count);
Submission AddProcessSetSubmission(std::vector<RankId> ranks);
absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag);

// The removal of a set, by the ranks of the set `by` (Runtime::RemoversOf).
Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by);

// As RemoveProcessSetSubmission(), for a rank that does not wait for the other ranks. So Ronda does not report ranks
// that are late.
Submission UnawaitedRemovalSubmission(ronda_process_set id, ProcessSetId by, const Caller& caller);

}  // namespace ronda

#endif  // RONDA_CLIENT_SESSION_H_
