#include "runtime/engine/tensor_log.h"

#include "runtime/engine/submission.h"
#include "runtime/negotiation/tensor_request.h"

namespace ronda {

void TensorLog::Draw(TimelineKind kind, const TensorRequest& request, FlightTime time, int number) {
  TimelineEvent event = {.kind = kind,
                         .op = request.op,
                         .dtype = request.dtype,
                         .number = number,
                         .bytes = TensorBytes(request),
                         .tensor = TensorKeyHash()(request.key())};
  event.set_time(time);
  event.set_name(request.name);
  timeline_->Record(event);
}

void TensorLog::Submitted(const TensorRequest& request, FlightTime time) {
  const FlightKind kind = request.op == OpType::kJoin ? FlightKind::kJoined : FlightKind::kSubmitted;
  flight_->Record(kind, request.op, request.name, TensorBytes(request), time);
  if (IsDrawn()) Draw(TimelineKind::kSubmitted, request, time);
}

void TensorLog::Reported(const TensorRequest& request) {
  const FlightTime now = FlightNow();
  flight_->Record(FlightKind::kReported, request.op, request.name, TensorBytes(request), now);
  if (IsDrawn()) Draw(TimelineKind::kReported, request, now);
}

void TensorLog::Agreed(const AgreedBucket& bucket) {
  const FlightTime now = FlightNow();
  const TensorRequest& first = bucket.responses.front()->request;
  flight_->Record(FlightKind::kAgreed, first.op, first.name, TensorBytes(first), now);
  if (!IsDrawn()) return;
  for (const auto& response : bucket.responses) Draw(TimelineKind::kAgreed, response->request, now);
}

void TensorLog::Failed(const TensorRequest& request) {
  const FlightTime now = FlightNow();
  flight_->Record(FlightKind::kFailed, request.op, request.name, TensorBytes(request), now);
  if (IsDrawn()) Draw(TimelineKind::kFailed, request, now);
}

void TensorLog::Started(const Collective& collective) {
  const FlightTime now = FlightNow();
  flight_->Record(FlightKind::kStarted, collective.op(), collective.label, collective.bytes, now);
  if (!IsDrawn()) return;
  TimelineEvent event = {.kind = TimelineKind::kBucketStarted,
                         .op = collective.op(),
                         .dtype = collective.bucket.responses.front()->request.dtype,
                         .number = static_cast<int32_t>(collective.bucket.responses.size()),
                         .bytes = collective.bytes};
  event.set_time(now);
  event.set_name(collective.label);
  timeline_->Record(event);
  for (const auto& response : collective.bucket.responses) {
    Draw(TimelineKind::kBucketMember, response->request, now);
  }
}

// A vetoed bucket has not happened. A launched one ends when the device has come to it, which the watch of the device
// notes.
void TensorLog::Ended(const Collective& collective, BucketOutcome outcome) {
  const FlightTime now = FlightNow();
  if (outcome == BucketOutcome::kDone || outcome == BucketOutcome::kFailed) {
    const FlightKind kind = outcome == BucketOutcome::kDone ? FlightKind::kFinished : FlightKind::kFailed;
    flight_->Record(kind, collective.op(), collective.label, collective.bytes, now);
  }
  if (!IsDrawn()) return;
  TimelineEvent event = {.kind = TimelineKind::kBucketEnded, .number = static_cast<int32_t>(outcome)};
  event.set_time(now);
  timeline_->Record(event);
}

void TensorLog::Waited(const AgreedBucket& bucket) {
  if (IsDrawn()) Draw(TimelineKind::kWaiting, bucket.responses.front()->request, FlightNow());
}

void TensorLog::Cycled() {
  if (!IsDrawn()) return;
  TimelineEvent event = {.kind = TimelineKind::kCycle};
  event.set_time(FlightNow());
  timeline_->Record(event);
}

void TensorLog::Ready(RankId rank, const TensorRequest& request) {
  if (IsDrawn()) Draw(TimelineKind::kReady, request, FlightNow(), rank);
}

}  // namespace ronda
