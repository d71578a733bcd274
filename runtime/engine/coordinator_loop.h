#ifndef RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_
#define RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/topology.h"
#include "runtime/engine/coordinator_role.h"
#include "runtime/engine/executor.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {

// The body of a rank's coordinator thread: moves submissions to the negotiation, and its responses to the executor.
//
// It sleeps in ControlPlane::Wait until a submission, a message or a deadline gives it something to do. Every error is
// the job's failure: it is recorded for all ranks, every handle in flight completes with it, and the loop ends.
//
// Thread-safety: Submit and RequestShutdown may be called from any thread; Run is the coordinator thread.
class CoordinatorLoop {
 public:
  struct Options {
    Tunables tunables;
    Clock* clock;          // not owned
    std::string identity;  // "host h, pid 42"
  };

  CoordinatorLoop(Options options, const Topology& topology, Transport transport);

  absl::StatusOr<std::shared_ptr<Handle>> Submit(Submission submission);

  // No submission is accepted any more; Run returns once what is in flight is complete and every rank has asked for
  // the same.
  void RequestShutdown();

  // This rank gives up: the job fails with `status`, unless it has failed already.
  void Abandon(const absl::Status& status) { transport_.control->Fail(status); }

  // Runs until the job ends. OK after a shutdown of all ranks, else the job's failure.
  absl::Status Run();

 private:
  enum class Progress { kNone, kSome, kJobEnded };

  absl::StatusOr<Progress> Step();
  absl::Status ReportFresh(absl::Time now);
  absl::StatusOr<Progress> Apply(const std::string& broadcast);
  absl::Status CheckCoordinatorAnswers(absl::Time now);
  absl::Time NextDeadline(absl::Time now) const;
  absl::Status Fail(const absl::Status& cause);

  const Options options_;
  const Topology topology_;
  Transport transport_;
  TensorQueue queue_;
  Reporter reporter_;
  Executor executor_;
  std::optional<CoordinatorRole> role_;  // on rank 0
  std::atomic<bool> shutdown_requested_{false};
  enum class Leaving { kNo, kReported } leaving_ = Leaving::kNo;
  absl::Time leaving_since_;
  absl::Duration answer_deadline_;  // the longest time that rank 0 may take to answer
  absl::Time next_answer_check_ = absl::InfinitePast();
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_COORDINATOR_LOOP_H_
