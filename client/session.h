// One rank's part in a job, as the C ABI uses it; the ranks that are threads of the process; and the submissions that
// get no name from the caller.
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

// Numbers the operations that callers do not name, barriers for instance, so that the n-th on one rank matches the n-th
// on every other rank.
//
// A number whose operation failed because some rank was late is given out again. So the late rank matches the next
// operation of the ranks that have waited, and not one that they have given up.
//
// Thread-compatible.
class NumberSequence {
 public:
  // The number for the next operation.
  uint64_t Next();

  // The last number on whose operation ranks have disagreed, if there is one since the last call of this.
  std::optional<uint64_t> TakeDisagreement() { return std::exchange(disagreement_, std::nullopt); }

  // The smallest number that is under way, or else the next.
  uint64_t oldest() const { return in_flight_.empty() ? next_ : in_flight_.front().number; }

  // The operation with the number that Next() has returned is under way. Until then Next() keeps returning it.
  // Allocates nothing: an operation that is under way cannot be taken back.
  // REQUIRES: Next() has been called since the last Take().
  void Take(std::shared_ptr<const Handle> operation);

 private:
  struct InFlight {
    uint64_t number;
    std::shared_ptr<const Handle> operation;
  };

  // Looks for ends among so many of the oldest: a look at all of them, at each of many, would take long.
  static constexpr size_t kLookedAt = 64;

  // Notes the ends of operations since the last call.
  void Settle();
  void Settle(const InFlight& ended);

  uint64_t next_ = 0;                // never given out
  std::set<uint64_t> again_;         // to be given out before
  std::vector<InFlight> in_flight_;  // ascending
  std::optional<uint64_t> disagreement_;
};

// A rank's operations on tensors without a name, in one process set.
struct UnnamedCalls {
  NumberSequence numbers;
  CallOrder order;
};

// One rank's part in a job, from ronda_init() to ronda_shutdown() or while the body of ronda_run_threads() runs: the
// runtime, and the numbering of the operations that callers do not name.
//
// Thread-safe.
class Session {
 public:
  // Operations of one kind (barriers of a process set, tensors from a to b with a tag) that may be in flight at once.
  static constexpr uint64_t kConcurrentOfAKind = kMessageNumbers;

  // `limits` are those that this rank would give the job.
  Session(std::unique_ptr<Runtime> runtime, WaitLimits limits)
      : owned_(std::move(runtime)), runtime_(*owned_), limits_(limits) {}
  // `runtime` is the caller's, and outlives the session.
  Session(Runtime& runtime, WaitLimits limits) : runtime_(runtime), limits_(limits) {}

  Runtime& runtime() const { return runtime_; }
  const Topology& topology() const { return runtime_.topology(); }
  Caller caller() const { return {.rank = topology().rank, .limits = limits_}; }

  // Whether the runtime lives at least as long as the session.
  bool owns_runtime() const { return owned_ != nullptr; }

  // Whether Submit() makes up the name: of sends and receives, and of tensors without a name.
  static bool Names(const Submission& submission) {
    return submission.request.op == OpType::kSendRecv || submission.request.name.empty();
  }

  // Submits for a C caller: a send or receive as this rank's next of its kind, a tensor without a name as this rank's
  // next of those in the process set (call_order.h), other operations unchanged. The content of `*submission` is lost.
  // Errors: as SubmitNumbered; ALREADY_EXISTS if CallOrder::kRemembered tensors without a name are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission* submission);

  // Submits this rank's next operation of a kind, which request.name says. A number is appended to the name.
  // Errors: Runtime::Submit's; ALREADY_EXISTS if kConcurrentOfAKind are in flight.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumbered(Submission submission);

  // Has the operation fail that `refusal` (RefusalSubmission) stands for: this rank's next one without a name in the
  // process set, or its next message of a kind. Waits for no rank.
  // Errors: as Submit.
  absl::Status Refuse(Submission refusal) { return Submit(&refusal).status(); }

  // Forgets the numbers of process sets that have been removed.
  void ForgetRemovedSets();

  // Submits a join. Ranks that have joined do not count the further operations of the others. So the numbers of the
  // process set begin anew, on every rank, once all have joined.
  // Errors: Runtime::Submit's.
  absl::StatusOr<std::shared_ptr<Handle>> SubmitJoin(const Submission& submission);

  // How often all ranks have joined. Ranks that count what they do without names begin anew then.
  // Errors: INVALID_ARGUMENT if this rank has joined and others have not yet.
  absl::StatusOr<uint64_t> CountJoins();

  // Lives as long as a caller keeps it, also beyond the session.
  std::shared_ptr<StopAgreement> stop_agreement() const { return stop_agreement_; }
  // The same of ronda_elastic_poll().
  std::shared_ptr<StopAgreement> change_agreement() const { return change_agreement_; }

 private:
  absl::StatusOr<std::shared_ptr<Handle>> SubmitUnnamed(Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitMessage(Submission* submission);
  absl::StatusOr<std::shared_ptr<Handle>> SubmitNumberedLocked(Submission submission)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether this receive takes messages in the order of their arrival: it is from any rank, or one with its tag that
  // does so is in flight. `name` is ReceiveName().
  bool IsInOrderLocked(const TensorRequest& request, const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Begins the numbers of a process set anew if its join has ended since.
  void SettleJoinLocked(ProcessSetId set) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::unique_ptr<Runtime> owned_;  // null if the runtime is the caller's
  Runtime& runtime_;
  const WaitLimits limits_;
  const std::shared_ptr<StopAgreement> stop_agreement_ = std::make_shared<StopAgreement>();
  const std::shared_ptr<StopAgreement> change_agreement_ = std::make_shared<StopAgreement>("elastic_poll");
  Mutex mu_;
  using Kind = std::pair<ProcessSetId, std::string>;  // a process set and a name
  std::map<Kind, NumberSequence> sequences_ ABSL_GUARDED_BY(mu_);
  // Receives in order of arrival, by ReceiveName(), which do not count yet as receives from their senders.
  std::map<Kind, std::vector<std::shared_ptr<const Handle>>> receives_ ABSL_GUARDED_BY(mu_);
  std::map<ProcessSetId, UnnamedCalls> unnamed_ ABSL_GUARDED_BY(mu_);
  // This rank's last join of each process set, until it is settled; null: not submitted.
  std::map<ProcessSetId, std::shared_ptr<const Handle>> joins_ ABSL_GUARDED_BY(mu_);
  uint64_t joins_of_all_ ABSL_GUARDED_BY(mu_) = 0;  // joins of the set of all ranks that have ended
};

// The ranks that are threads of this process, by number; and the rank for which each thread acts.
//
// Thread-safe.
class RankContexts {
 public:
  // The rank for which a thread acts. The pointer is weak: a thread that outlives its rank finds it expired.
  struct Role {
    ronda_context id = 0;  // 0: the process' own
    std::weak_ptr<Session> session;
  };

  // Makes the calling thread act for `session`, and lets other threads do so too, until it is destroyed. The destructor
  // waits until no other thread holds the session. At most one a thread.
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

  // Makes the calling thread act for `role`, which may be another thread's, until it is destroyed.
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

  // Makes the calling thread act for the rank of this number; 0: for the process' own.
  // False if there is none (any more).
  bool MakeCurrent(ronda_context id);

  // The rank that the calling thread acts for; 0: the process' own.
  static ronda_context Current();

  // The calling thread acts for no rank any more.
  static void Leave();

  // The session of that rank; null if its scope has ended.
  // REQUIRES: Current() is not 0.
  static std::shared_ptr<Session> CurrentSession();

 private:
  mutable Mutex mu_;
  ronda_context next_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<ronda_context, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mu_);
};

// A barrier or a join: their name is given, like that of send and receive. `timeout_s` as ronda_monitored_barrier().
absl::StatusOr<Submission> BarrierSubmission(ronda_process_set set, double timeout_s, const Caller& caller);
// `absent` may hold no enumerator, and is not loaded as one.
absl::StatusOr<Submission> JoinSubmission(ronda_process_set set, const ronda_absent& absent);

// The begin of a set: by all ranks of the job, or by its members, for whom the ranks and `tag` (which may be null) make
// up the name.
absl::StatusOr<Submission> AddProcessSetSubmission(const int* ranks, int count);
Submission AddProcessSetSubmission(std::vector<RankId> ranks);
absl::StatusOr<Submission> CreateProcessSetSubmission(const int* ranks, int count, const char* tag);

// The end of a set, by the ranks of the set `by` (Runtime::RemoversOf).
Submission RemoveProcessSetSubmission(ronda_process_set id, ProcessSetId by);

// The same for a rank that does not wait for the others, so that it is no news that they come late.
Submission UnawaitedRemovalSubmission(ronda_process_set id, ProcessSetId by, const Caller& caller);

}  // namespace ronda

#endif  // RONDA_CLIENT_SESSION_H_
