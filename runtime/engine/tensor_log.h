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

// Takes note of the events of a rank's tensors: in its flight recorder and in its counters, always, and in its
// timeline, in more detail, while there is one.
//
// Thread-safe. Owns none of the three.
class TensorLog {
 public:
  // `timeline` and `meter` may be nullptr: there is none, ever.
  TensorLog(FlightRecorder* flight, Timeline* timeline, RankMeter* meter)
      : flight_(flight), timeline_(timeline), meter_(meter) {}

  // The time for tensors that are submitted together, in nanoseconds: to the millisecond, unless a timeline shows it.
  uint64_t SubmissionTime() const {
    return IsDrawn() ? FlightNanoseconds() : static_cast<uint64_t>(absl::ToInt64Nanoseconds(CoarseFlightNow()));
  }
  void Submitted(const TensorRequest& request, uint64_t time);
  // A tensor is submitted that the step so far has already; called under the lock of submissions.
  void StepEnded(uint64_t time);
  // How many tensors the engine has to carry out; called by the progress thread.
  void InFlight(size_t tensors);
  // Returns the time that it has noted.
  FlightTime Reported(const TensorRequest& request);
  // The tensors of `bucket` are agreed on, and wait for the buckets before.
  void Agreed(const AgreedBucket& bucket);
  // One that is not carried out.
  void Failed(const TensorRequest& request);

  // A collective that this rank takes part in, one after the other.
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
  // The engine begins to carry out a response list, or a round of the locked schedule has been carried out.
  void Cycled();

  // Whether a timeline shows what this log takes note of.
  bool IsDrawn() const { return timeline_ != nullptr && timeline_->on(); }
  // `rank` is ready for a tensor; the coordinator rank notes it while IsDrawn().
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
