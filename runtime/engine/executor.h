#ifndef RONDA_RUNTIME_ENGINE_EXECUTOR_H_
#define RONDA_RUNTIME_ENGINE_EXECUTOR_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/engine/bucket_run.h"
#include "runtime/engine/exchanges.h"
#include "runtime/engine/handle.h"
#include "runtime/engine/process_sets.h"
#include "runtime/engine/reductions.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/negotiation/messages.h"

namespace ronda {

// Carries out buckets: looks up the tensors, has the collective run, completes the handles. What each operation calls
// is in Reductions and Exchanges; joins and process sets, which move no data, are settled here.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h).
class Executor {
 public:
  // Not owned; all must outlive the executor.
  struct Parts {
    Communicator* communicator;
    TensorQueue* queue;
    ProcessSets* process_sets;
    FlightRecorder* flight;  // this rank's
  };

  // `limits` hold for operations that bring none of their own.
  Executor(const Parts& parts, WaitLimits limits);

  // The job's limits, once they are known.
  void set_limits(WaitLimits limits) { limits_ = limits; }

  // Every rank executes every bucket, also those of process sets that it is not in.
  //
  // Errors: the communicator's; INTERNAL if a tensor was not submitted here; RESOURCE_EXHAUSTED if there is no memory
  // for a result. The handles of the bucket are then still in the queue, and the job cannot go on.
  absl::Status Execute(const AgreedBucket& bucket);

  // Executes a bucket of all ranks if they all vote to stay; otherwise nothing has happened, and the handles are still
  // in the queue.
  // Errors: the communicator's; RESOURCE_EXHAUSTED as Execute.
  struct Vote {
    Ballot::Vote own = Ballot::Vote::kStay;
    // This rank's submissions, one a response. A rank that votes to leave need not have submitted the tensors.
    absl::Span<const TensorEntry* const> entries;
    absl::FunctionRef<void()> when_late;  // called once if this rank waits for longer than the warning time
  };
  absl::StatusOr<Ballot::Result> ExecuteIfAllStay(const AgreedBucket& bucket, const Vote& vote);

 private:
  void ForgetEntries();
  // Looks up this rank's submissions, one a response.
  absl::Status FindEntries(const AgreedBucket& bucket);
  BucketRun MakeRun(const AgreedBucket& bucket, const Group& group);
  absl::Status CarryAndComplete(const BucketRun& run);
  absl::Status Carry(const BucketRun& run);
  absl::Status CarryAfterVote(const BucketRun& run);
  absl::Status SettleMembership(const BucketRun& run);

  const Parts parts_;
  WaitLimits limits_;
  Reductions reductions_;
  Exchanges exchanges_;
  // Of the bucket that is carried out; kept for their memory.
  std::vector<const TensorEntry*> entries_;
  std::vector<OperationResult> results_;
  std::string label_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_EXECUTOR_H_
