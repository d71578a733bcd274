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

// The points that a bucket's work on a stream is divided by.
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

// Shows in a timeline the work of a device for each bucket, and its times; and counts the times of a few buckets, also
// while no timeline is written. The thread that puts work on the stream marks its parts by events, for these buckets.
// No thread ever waits for the device: the watch, which learns that a bucket is done, asks for the time between the
// events.
//
// Device time is not the host's. The first bucket is taken to begin when the host recorded its begin, and each later
// one begins so long after the end of the one before as the events say; if that was a second or more it begins anew, as
// times between events are short floating-point numbers. Two facts bound both clocks' errors:
// no bucket begins before the host gave it to the device, and none ends after the host has seen it end. A bucket that
// would is moved, and those after it too. So spans are late or early by the time until the device hears of the first
// bucket, some microseconds, and exact among themselves.
//
// Thread-safety: Begin, Mark and Take are for the thread that puts work on the stream; Draw for the one that learns of
// its end, bucket by bucket. Does not own the timeline; keeps the device.
class StreamTimer : public StreamMarks {
 public:
  // `timeline` may be nullptr: nothing is drawn, ever. So may `times`: nothing is counted. Not owned.
  StreamTimer(std::shared_ptr<Device> device, StreamHandle stream, Timeline* timeline, DeviceTimes* times = nullptr)
      : device_(std::move(device)), stream_(stream), timeline_(timeline), times_(times) {}

  // A bucket begins.
  void Begin();
  void Mark(StreamPhase phase) override;
  // All of it is on the stream; a part that was not marked is a transfer. nullptr if it is not timed.
  std::shared_ptr<BucketTiming> Take();

  // The device has come to the end of the bucket.
  struct Facts {
    OpType op = OpType::kAllreduce;
    absl::string_view label;
    uint64_t bytes = 0;
  };
  void Draw(const Facts& facts, BucketTiming& timing);

 private:
  // A part of a bucket as the host's clock has it; nanoseconds.
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
  // Where the last bucket ended: on the device and in the host's time. nullptr: there is none to count from.
  std::unique_ptr<DeviceEvent> last_;
  int64_t last_time_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_STREAM_TIMER_H_
