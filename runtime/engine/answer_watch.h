#ifndef RONDA_RUNTIME_ENGINE_ANSWER_WATCH_H_
#define RONDA_RUNTIME_ENGINE_ANSWER_WATCH_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/engine/tensor_queue.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// How long to wait for rank 0, which fails a stalled tensor itself at the deadline: this much later the other ranks
// conclude that it does not run.
absl::Duration AnswerDeadline(const WaitLimits& limits);

// Watches whether rank 0 answers what this rank has told it. As long as it answers anything it is there: what then
// waits for too long it fails itself.
//
// Thread-compatible: used by the thread that has the turn (engine_driver.h).
class AnswerWatch {
 public:
  // Neither is owned.
  AnswerWatch(const TensorQueue* queue, const FlightBoard* flights, WaitLimits limits);

  // The job's limits, once they are known.
  void set_limits(WaitLimits limits);

  // The tensor has been reported.
  void Expect(const TensorEntry& entry);

  // This rank has said that it leaves.
  void ExpectEnd(absl::Time now);

  // What rank 0 has last said is carried out: while this rank was in collectives it did not listen, nor did rank 0
  // speak.
  void Heard(absl::Time now);

  // Errors: DEADLINE_EXCEEDED if rank 0 has not answered for too long, with what it did last.
  absl::Status Check(absl::Time now);

  // When to call Check again at the latest.
  absl::Time next_check() const { return next_check_; }

 private:
  absl::Time UnansweredSince(const TensorEntry& entry) const;
  absl::Time AnswerDue(const TensorEntry& entry) const;

  const TensorQueue* const queue_;
  const FlightBoard* const flights_;
  WaitLimits limits_;
  absl::Time leaving_since_ = absl::InfiniteFuture();
  absl::Time last_activity_ = absl::InfinitePast();
  absl::Time next_check_ = absl::InfiniteFuture();  // nothing that waits is due before
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_ANSWER_WATCH_H_
