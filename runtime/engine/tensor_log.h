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

// Records the events of a rank's tensors in the rank's flight recorder and counters and, in more detail, in a timeline
// if the rank writes one.
//
// Thread-safe. Does not own the objects in which it records.
class TensorLog {
 public:
  // `timeline` and `meter` may be nullptr; then nothing is recorded in the missing object.
  TensorLog(FlightRecorder* flight, Timeline* timeline, RankMeter* meter)
      : flight_(flight), timeline_(timeline), meter_(meter) {}

  // Returns the submission time for tensors that are submitted together, in nanoseconds. The time is exact if a
  // timeline shows it, and otherwise may be off by a few milliseconds.
  uint64_t SubmissionTime() const {
    return IsDrawn() ? FlightNanoseconds() : static_cast<uint64_t>(absl::ToInt64Nanoseconds(CoarseFlightNow()));
  }
  void Submitted(const TensorRequest& request, uint64_t time);
  // Must be called when the program submits a tensor that the current step already contains. The caller must hold the
  // lock of the submissions.
  void StepEnded(uint64_t time);
  // Records how many tensors the engine has to carry out. The progress thread calls InFlight.
  void InFlight(size_t tensors);
  // Records that the rank has reported the tensor to the coordinator. Returns the recorded time.
  FlightTime Reported(const TensorRequest& request);
  // Records that the ranks have agreed on the tensors of `bucket`, which now wait for earlier buckets.
  void Agreed(const AgreedBucket& bucket);
  // Records that a tensor is not carried out.
  void Failed(const TensorRequest& request);

  // A collective in which this rank takes part. A rank is in one collective at a time.
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
  // Records a collective in which this rank takes no part.
  void PassedBy();

  // Records that this rank has waited in a collective of the locked schedule for longer than the warning time.
  void Waited(const AgreedBucket& bucket);
  // Records that the engine begins to carry out a response list, or has carried out a round of the locked schedule.
  void Cycled();

  // Returns whether a timeline shows the events that this log records.
  bool IsDrawn() const { return timeline_ != nullptr && timeline_->on(); }
  // Records that `rank` is ready for a tensor. Only the coordinator calls Ready, and only if IsDrawn() is true.
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
