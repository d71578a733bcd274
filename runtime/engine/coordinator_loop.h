#ifndef RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_
#define RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/topology.h"
#include "runtime/engine/callback_thread.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/process_sets.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// The body of a rank's coordinator thread: moves submissions to the negotiation, and its responses to the executor.
//
// It sleeps in ControlPlane::Wait until a submission, a message or a deadline gives it something to do. Every error is
// the job's failure: it is recorded for all ranks, every handle in flight completes with it, and the loop ends.
//
// Thread-safety: Run is the coordinator thread; all else may be called from any thread.
class CoordinatorLoop {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock;          // not owned
    std::string identity;  // "host h, pid 42"
  };

  CoordinatorLoop(Options options, const Topology& topology, Transport transport);

  // What the process sets are, as far as this rank has got.
  const ProcessSets& process_sets() const { return process_sets_; }

  // Submits all, or, after an error or an exception, none.
  absl::StatusOr<std::vector<std::shared_ptr<Handle>>> SubmitAll(absl::Span<const Submission> submissions);
  absl::StatusOr<std::shared_ptr<Handle>> Submit(const Submission& submission);

  // No submission is accepted any more; Run returns once what is in flight is complete, its callbacks have run, and
  // every rank has asked for the same.
  void RequestShutdown();

  // This rank gives up: the job fails with `status`, unless it has ended or failed already.
  void Abandon(const absl::Status& status);

  // Runs until the job ends. OK after a shutdown of all ranks, else the job's failure.
  absl::Status Run();

  // Runs the callbacks that are left, unless called from one. Afterwards nothing uses this object but its owner.
  // REQUIRES: Run has returned.
  void StopCallbacks() { callbacks_->Stop(); }
  bool IsCallbackThread() const { return callbacks_->IsThisThread(); }

 private:
  enum class Progress { kNone, kSome, kJobEnded };

  CallbackThread::Hooks MakeHooks();
  absl::StatusOr<Progress> StepOrCatch();
  void AbandonState();
  absl::StatusOr<Progress> Step();
  absl::Status ReportFresh(absl::Time now);
  void Report(const TensorEntry& entry);
  absl::StatusOr<Progress> Apply(const std::string& broadcast, absl::Time now);
  void RecordOrders(const std::vector<AgreedBucket>& buckets);
  absl::Status Answer(const TensorError& error);
  absl::Time UnansweredSince(const TensorEntry& entry) const;
  absl::Time AnswerDue(const TensorEntry& entry) const;
  absl::Status CheckCoordinatorAnswers(absl::Time now);
  absl::Time NextDeadline(absl::Time now) const;
  absl::Status Fail(const absl::Status& cause);
  absl::Status FailOrRetry(const absl::Status& cause);

  const Options options_;
  const Topology topology_;
  Transport transport_;
  FlightRecorder* const flight_;  // this rank's
  std::atomic<bool> shutdown_requested_{false};
  std::atomic<bool> ended_{false};  // in good order
  const std::shared_ptr<CallbackThread> callbacks_;
  ProcessSets process_sets_;
  TensorQueue queue_;
  WaitLimits limits_;  // rank 0's, once they are known
  std::unique_ptr<Reporter> reporter_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<CoordinatorRole> role_;  // on rank 0
  enum class Leaving { kNo, kReported } leaving_ = Leaving::kNo;
  absl::Time leaving_since_;
  absl::Time last_activity_ = absl::InfinitePast();        // when what rank 0 has last said was carried out
  absl::Time next_answer_check_ = absl::InfiniteFuture();  // nothing that waits is due before
  // Made beforehand: there is no memory for it when it is needed.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory in the coordinator thread");
  std::unique_ptr<std::byte[]> emergency_memory_;  // given back when there is none left, to be able to say so
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_
