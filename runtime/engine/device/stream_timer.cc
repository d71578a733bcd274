// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/stream_timer.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// CUDA returns the time between events as a float, whose 24-bit mantissa is too imprecise for longer times.
constexpr absl::Duration kLongestStep = absl::Seconds(1);

// The names of the phases in a timeline, in the order of StreamPhase.
constexpr absl::string_view kPhaseNames[] = {"WAIT_FOR_DATA", "PACK", "TRANSFER", "REDUCE", "UNPACK"};
static_assert(DeviceTimes::kPhases == static_cast<int>(StreamPhase::kUnpack) + 1);

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceEvent>> StreamTimer::RecordEvent() {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, device_->NewEvent(DeviceEvent::Kind::kTimed));
  RONDA_RETURN_IF_ERROR(event->Record(stream_));
  return event;
}

void StreamTimer::Begin() {
  bucket_.reset();
  const bool is_drawn = timeline_ != nullptr && timeline_->on();
  const bool is_counted = times_ != nullptr && begun_++ % DeviceTimes::kPeriod == 0;
  if (!is_drawn && !is_counted) return;
  auto bucket = std::make_shared<BucketTiming>();
  bucket->is_drawn = is_drawn;
  bucket->is_counted = is_counted;
  bucket->submitted = FlightNow();
  absl::StatusOr<std::unique_ptr<DeviceEvent>> event = RecordEvent();
  if (!event.ok()) return;
  bucket->begin = *std::move(event);
  bucket_ = std::move(bucket);
}

void StreamTimer::Mark(StreamPhase phase) {
  if (bucket_ == nullptr) return;
  absl::StatusOr<std::unique_ptr<DeviceEvent>> event = RecordEvent();
  if (event.ok()) bucket_->parts.push_back({.phase = phase, .end = *std::move(event)});
}

std::shared_ptr<BucketTiming> StreamTimer::Take() {
  constexpr size_t kWaitAlone = 1;
  if (bucket_ != nullptr && bucket_->parts.size() <= kWaitAlone) Mark(StreamPhase::kTransfer);
  return std::move(bucket_);
}

void StreamTimer::Draw(const Facts& facts, BucketTiming& timing) {
  if (timing.parts.empty()) return;
  if (timing.is_counted) Count(timing).IgnoreError();  // the device's error, which the watch also finds
  if (!timing.is_drawn) return;
  const absl::StatusOr<std::vector<Span>> spans = Place(timing, absl::ToInt64Nanoseconds(FlightNow()));
  if (!spans.ok()) {
    last_.reset();
    return;
  }
  TimelineEvent bucket = {.kind = TimelineKind::kDeviceBucket,
                          .op = facts.op,
                          .number = device_->ordinal(),
                          .time = spans->front().begin,
                          .duration = spans->back().end - spans->front().begin,
                          .bytes = facts.bytes};
  bucket.set_name(facts.label);
  timeline_->Record(bucket);
  for (size_t i = 0; i < spans->size(); ++i) {
    const Span& span = (*spans)[i];
    TimelineEvent part = {.kind = TimelineKind::kDevicePhase, .time = span.begin, .duration = span.end - span.begin};
    part.set_name(kPhaseNames[static_cast<size_t>(timing.parts[i].phase)]);
    timeline_->Record(part);
  }
  last_ = std::move(timing.parts.back().end);
  last_time_ = spans->back().end;
}

absl::Status StreamTimer::Count(const BucketTiming& timing) {
  const DeviceEvent* before = timing.begin.get();
  for (const BucketTiming::Part& part : timing.parts) {
    RONDA_ASSIGN_OR_RETURN(const absl::Duration elapsed, part.end->Since(*before));
    times_->nanoseconds[static_cast<size_t>(part.phase)].Add(
        static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Nanoseconds(elapsed))));
    before = part.end.get();
  }
  times_->buckets.Add();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StreamTimer::Span>> StreamTimer::Place(const BucketTiming& timing, int64_t now) {
  std::vector<Span> spans;
  RONDA_ASSIGN_OR_RETURN(int64_t time, BeginOf(timing));
  const DeviceEvent* before = timing.begin.get();
  for (const BucketTiming::Part& part : timing.parts) {
    RONDA_ASSIGN_OR_RETURN(const absl::Duration elapsed, part.end->Since(*before));
    const int64_t end = time + std::max<int64_t>(0, absl::ToInt64Nanoseconds(elapsed));
    spans.push_back({.begin = time, .end = end});
    time = end;
    before = part.end.get();
  }
  const int64_t submitted = absl::ToInt64Nanoseconds(timing.submitted);
  const int64_t early = std::min(std::max<int64_t>(0, time - now), spans.front().begin - submitted);
  for (Span& span : spans) span = {.begin = span.begin - early, .end = std::min(span.end - early, now)};
  return spans;
}

absl::StatusOr<int64_t> StreamTimer::BeginOf(const BucketTiming& timing) {
  const int64_t submitted = absl::ToInt64Nanoseconds(timing.submitted);
  if (last_ == nullptr) return submitted;
  RONDA_ASSIGN_OR_RETURN(const absl::Duration gap, timing.begin->Since(*last_));
  if (gap > kLongestStep) return submitted;
  return std::max(submitted, last_time_ + absl::ToInt64Nanoseconds(gap));
}

}  // namespace ronda
