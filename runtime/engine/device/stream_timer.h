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

// The points that divide a bucket's work on a stream into parts.
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

// Draws the work of a device for each bucket, with its times, into a timeline. It also counts the times of a few
// buckets, even while no timeline is written. For these buckets the thread that puts work on the stream marks the parts
// by events. No thread ever waits for the device: when the watch learns that a bucket is done, it asks for the times
// between the events.
//
// The device's clock is not the host's. The first bucket is assumed to begin when the host recorded its begin. Each
// later bucket begins after the end of the previous one, by the time between their events. A bucket after a gap of a
// second or more is treated like the first bucket, because the times between events are single-precision numbers. Two
// facts limit the error: no bucket begins before the host gave it to the device, and none ends after the host has seen
// it end. A bucket that would do so is moved, together with the later ones. So all spans are late or early by the time
// until the device learns of the first bucket, which is some microseconds. Relative to each other, the spans are exact.
//
// Thread-safety: Begin, Mark and Take are for the thread that puts work on the stream; Draw is for the thread that
// learns of its end, bucket by bucket. Does not own the timeline; keeps the device.
class StreamTimer : public StreamMarks {
 public:
  // `timeline` may be nullptr: then nothing is drawn. `times` may be nullptr: then nothing is counted. Neither is
  // owned.
  StreamTimer(std::shared_ptr<Device> device, StreamHandle stream, Timeline* timeline, DeviceTimes* times = nullptr)
      : device_(std::move(device)), stream_(stream), timeline_(timeline), times_(times) {}

  // A bucket begins.
  void Begin();
  void Mark(StreamPhase phase) override;
  // The whole bucket is on the stream; a part that was not marked is a transfer. Returns nullptr if the bucket is not
  // timed.
  std::shared_ptr<BucketTiming> Take();

  // The device has finished the bucket.
  struct Facts {
    OpType op = OpType::kAllreduce;
    absl::string_view label;
    uint64_t bytes = 0;
  };
  void Draw(const Facts& facts, BucketTiming& timing);

 private:
  // A part of a bucket in the host's time, in nanoseconds.
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
  // Where the last bucket ended: on the device, and in the host's time. nullptr: no bucket to count from.
  std::unique_ptr<DeviceEvent> last_;
  int64_t last_time_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_STREAM_TIMER_H_
