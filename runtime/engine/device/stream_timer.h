// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_STREAM_TIMER_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_STREAM_TIMER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/cuda/device.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/rank_words.h"
#include "runtime/monitor/timeline/timeline.h"

namespace ronda {

// The events on a stream that divide a bucket's work into parts.
struct BucketTiming {
  struct Part {
    StreamPhase phase;
    std::unique_ptr<DeviceEvent> end;
  };

  bool is_drawn = false;    // in a timeline
  bool is_counted = false;  // in DeviceTimes

  FlightTime submitted;  // before `begin` was recorded
  std::unique_ptr<DeviceEvent> begin;
  std::vector<Part> parts;
};

// Writes the device's work for each bucket, with its times, into a timeline. Even without a timeline, it counts the
// times of a few buckets. The thread that enqueues a timed bucket marks the bucket's parts with events. When the watch
// learns that a bucket is done, it queries the device for the times between the events. So no thread waits for the
// device.
//
// The device's clock differs from the host's clock. The first bucket is assumed to begin when the host recorded its
// begin. Each later bucket is placed relative to the end of the previous one, by the time between their events. A
// bucket after a gap of a second or more is treated like the first bucket, because the times between events are
// single-precision numbers. Two facts limit the error. No bucket begins before the host enqueued it, and no bucket ends
// after the host has seen its end. If a bucket's computed times contradict these facts, the bucket and all later
// buckets are shifted. So all spans are off by a few microseconds, which is the time until the device learns of the
// first bucket. Relative to each other, the spans are exact.
//
// Thread-safety: only the thread that enqueues work on the stream may call Begin, Mark and Take. Only the thread that
// learns of the end of each bucket may call Draw. StreamTimer does not own the timeline, but keeps the device alive.
class StreamTimer : public StreamMarks {
 public:
  // If `timeline` is nullptr, nothing is drawn; if `times` is nullptr, nothing is counted. Neither is owned.
  StreamTimer(std::shared_ptr<Device> device, StreamHandle stream, Timeline* timeline, DeviceTimes* times = nullptr)
      : device_(std::move(device)), stream_(stream), timeline_(timeline), times_(times) {}

  // Must be called when a bucket begins.
  void Begin();
  void Mark(StreamPhase phase) override;
  // Must be called when the whole bucket is on the stream. Returns the bucket's events; nullptr if the bucket is not
  // timed. A part that was not marked counts as a transfer.
  std::shared_ptr<BucketTiming> Take();

  // The facts that Draw needs about a bucket that the device has finished.
  struct Facts {
    OpType op = OpType::kAllreduce;
    absl::string_view label;
    uint64_t bytes = 0;
  };
  void Draw(const Facts& facts, BucketTiming& timing);

 private:
  // The beginning and the end of a part of a bucket, in nanoseconds of the host's clock.
  struct Span {
    int64_t begin;
    int64_t end;
  };

  absl::StatusOr<std::unique_ptr<DeviceEvent>> RecordEvent();
  absl::Status Count(const BucketTiming& timing);
  absl::StatusOr<std::vector<Span>> Place(const BucketTiming& timing, int64_t now);
  absl::StatusOr<int64_t> BeginOf(const BucketTiming& timing);

  const std::shared_ptr<Device> device_;
  const StreamHandle stream_;
  Timeline* const timeline_;
  DeviceTimes* const times_;
  uint64_t begun_ = 0;                    // buckets
  std::shared_ptr<BucketTiming> bucket_;  // being put on the stream
  // The end of the last bucket, as an event on the device and as a time of the host's clock. The event is nullptr if
  // there is no last bucket.
  std::unique_ptr<DeviceEvent> last_;
  int64_t last_time_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_STREAM_TIMER_H_
