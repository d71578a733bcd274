// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_TENSOR_LOG_H_
#define RONDA_RUNTIME_ENGINE_TENSOR_LOG_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/rank_meter.h"
#include "runtime/monitor/timeline/timeline.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/tensor_request.h"

namespace ronda {

// Records the events of a rank's tensors: always in its flight recorder and its counters, and in more detail in its
// timeline, if it writes one.
//
// Thread-safe. Owns none of the three.
class TensorLog {
 public:
  // `timeline` and `meter` may be nullptr: then nothing is written to them.
  TensorLog(FlightRecorder* flight, Timeline* timeline, RankMeter* meter)
      : flight_(flight), timeline_(timeline), meter_(meter) {}

  // The time for tensors that are submitted together, in nanoseconds. It is exact only if a timeline shows it, else to
  // the millisecond.
  uint64_t SubmissionTime() const {
    return IsDrawn() ? FlightNanoseconds() : static_cast<uint64_t>(absl::ToInt64Nanoseconds(CoarseFlightNow()));
  }
  void Submitted(const TensorRequest& request, uint64_t time);
  // A tensor is submitted that the current step already contains. Called under the lock of submissions.
  void StepEnded(uint64_t time);
  // How many tensors the engine has to carry out; called by the progress thread.
  void InFlight(size_t tensors);
  // Returns the time that it has recorded.
  FlightTime Reported(const TensorRequest& request);
  // The ranks have agreed on the tensors of `bucket`, which now wait for earlier buckets.
  void Agreed(const AgreedBucket& bucket);
  // A tensor that is not carried out.
  void Failed(const TensorRequest& request);

  // A collective that this rank takes part in. A rank has one at a time.
  struct Collective {
    const AgreedBucket& bucket;
    absl::string_view label;
    uint64_t bytes = 0;
    BucketMode mode = BucketMode::kNegotiated;
    FlightTime ready = absl::ZeroDuration();  // when this rank had reported its tensors; of kNegotiated

    OpType op() const { return bucket.responses.front()->request.op; }
  };
  void Started(const Collective& collective);
  void Ended(const Collective& collective, BucketOutcome outcome);
  // A collective in which this rank takes no part.
  void PassedBy();

  // This rank has waited in a collective of the locked schedule for longer than the warning time.
  void Waited(const AgreedBucket& bucket);
  // The engine begins to carry out a response list, or it has carried out a round of the locked schedule.
  void Cycled();

  // Whether a timeline shows what this log records.
  bool IsDrawn() const { return timeline_ != nullptr && timeline_->on(); }
  // `rank` is ready for a tensor; the coordinator calls this while IsDrawn().
  void Ready(RankId rank, const TensorRequest& request);

 private:
  void Count(const Collective& collective, BucketOutcome outcome, uint64_t now);
  void Draw(TimelineKind kind, const TensorRequest& request, FlightTime time, int number = 0);

  FlightRecorder* const flight_;
  Timeline* const timeline_;
  RankMeter* const meter_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_TENSOR_LOG_H_
