// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/tensor_log.h"

#include <algorithm>

#include "kernels/dtype.h"
#include "runtime/negotiation/tensor_request.h"

namespace ronda {
namespace {

// Returns the bytes of a bucket in the wire format. All of its tensors have the same dtype and the same wire format.
uint64_t WireBytes(const TensorRequest& request, uint64_t bytes) {
  const WireFormatTraits& wire = TraitsOf(request.wire);
  const auto count = [&] { return bytes / SizeOf(request.dtype); };
  switch (wire.encoding) {
    case WireFormatTraits::Encoding::kAsIs:
      return bytes;
    case WireFormatTraits::Encoding::kDType: {
      const bool is_converted = request.dtype == DType::kFloat32 || request.dtype == DType::kFloat64;
      return is_converted ? count() * SizeOf(wire.dtype) : bytes;
    }
    case WireFormatTraits::Encoding::kBlocks:
      return IsFloatingPoint(request.dtype) ? kernels::Fp8Bytes(count()) : bytes;
  }
  return bytes;
}

}  // namespace

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

void TensorLog::Submitted(const TensorRequest& request, uint64_t time) {
  const FlightKind kind = request.op == OpType::kJoin ? FlightKind::kJoined : FlightKind::kSubmitted;
  flight_->Record(kind, request.op, request.name, TensorBytes(request), time);
  if (IsDrawn()) Draw(TimelineKind::kSubmitted, request, absl::Nanoseconds(time));
}

void TensorLog::StepEnded(uint64_t time) {
  if (meter_ != nullptr) meter_->BeginStep(time);
}

void TensorLog::InFlight(size_t tensors) {
  if (meter_ != nullptr) meter_->counters().tensors_in_flight.Set(tensors);
}

FlightTime TensorLog::Reported(const TensorRequest& request) {
  const FlightTime now = FlightNow();
  flight_->Record(FlightKind::kReported, request.op, request.name, TensorBytes(request), now);
  if (IsDrawn()) Draw(TimelineKind::kReported, request, now);
  return now;
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
  const uint64_t now = FlightNanoseconds();
  flight_->Record(FlightKind::kStarted, collective.op(), collective.label, collective.bytes, now);
  if (meter_ != nullptr) {
    const bool is_scheduled = collective.mode == BucketMode::kScheduled;
    const auto ready = is_scheduled ? now : static_cast<uint64_t>(absl::ToInt64Nanoseconds(collective.ready));
    meter_->EnterBucket(std::min(ready, now), now);
  }
  if (!IsDrawn()) return;
  TimelineEvent event = {.kind = TimelineKind::kBucketStarted,
                         .op = collective.op(),
                         .dtype = collective.bucket.responses.front()->request.dtype,
                         .number = static_cast<int32_t>(collective.bucket.responses.size()),
                         .bytes = collective.bytes};
  const FlightTime time = absl::Nanoseconds(now);
  event.set_time(time);
  event.set_name(collective.label);
  timeline_->Record(event);
  for (const auto& response : collective.bucket.responses) {
    Draw(TimelineKind::kBucketMember, response->request, time);
  }
}

// A vetoed bucket did not run. A launched bucket ends later, on the device, and the DeviceWatch records this end.
void TensorLog::Ended(const Collective& collective, BucketOutcome outcome) {
  const uint64_t now = FlightNanoseconds();
  if (outcome == BucketOutcome::kDone || outcome == BucketOutcome::kFailed) {
    const FlightKind kind = outcome == BucketOutcome::kDone ? FlightKind::kFinished : FlightKind::kFailed;
    flight_->Record(kind, collective.op(), collective.label, collective.bytes, now);
  }
  Count(collective, outcome, now);
  if (!IsDrawn()) return;
  TimelineEvent event = {.kind = TimelineKind::kBucketEnded, .number = static_cast<int32_t>(outcome)};
  event.set_time(absl::Nanoseconds(now));
  timeline_->Record(event);
}

void TensorLog::Count(const Collective& collective, BucketOutcome outcome, uint64_t now) {
  if (meter_ == nullptr) return;
  if (outcome != BucketOutcome::kDone && outcome != BucketOutcome::kLaunched) return meter_->LeaveWithoutEffect(now);
  const TensorRequest& first = collective.bucket.responses.front()->request;
  meter_->LeaveBucket({.op = first.op,
                       .mode = collective.mode,
                       .tensors = collective.bucket.responses.size(),
                       .payload_bytes = collective.bytes,
                       .wire_bytes = WireBytes(first, collective.bytes)},
                      now);
}

void TensorLog::PassedBy() {
  if (meter_ != nullptr) meter_->PassBucket();
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
