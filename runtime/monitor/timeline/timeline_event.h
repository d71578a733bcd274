#ifndef RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_EVENT_H_
#define RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/short_name.h"

namespace ronda {

enum class TimelineKind : uint8_t {
  kSubmitted,      // a tensor: the trainer handed it over
  kReported,       // a tensor: the coordinator rank is told
  kReady,          // a tensor, on the coordinator rank: rank `number` has told
  kAgreed,         // a tensor: the coordinator rank has ordered it to be carried out
  kFailed,         // a tensor that was not carried out
  kBucketStarted,  // a collective begins, of `number` tensors; one at a time
  kBucketMember,   // a tensor that is in it
  kBucketEnded,    // `number` is a BucketOutcome
  kWaiting,        // the collective has waited for longer than the warning time
  kCycle,          // the engine begins to carry out what was ordered, or a round of the locked schedule
  kDeviceBucket,   // what device `number` has done for a collective, for `duration`
  kDevicePhase,    // a part of that, of this name
};

enum class BucketOutcome : int32_t {
  kDone,
  kLaunched,  // it is up to the device now
  kVetoed,    // it has happened on no rank, and its tensors are in flight as before
  kFailed,
};

// Something that has happened to a tensor or a collective on a rank, as it is handed to the writer of a timeline: of
// fixed size, and nothing in it points anywhere.
struct TimelineEvent {
  static constexpr size_t kNameBytes = 80;

  TimelineKind kind = TimelineKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  uint8_t name_bytes = 0;
  int32_t number = 0;
  int64_t time = 0;      // nanoseconds on the clock of flight recorders
  int64_t duration = 0;  // nanoseconds
  uint64_t bytes = 0;
  uint64_t tensor = 0;    // tells tensors apart, also those whose names have the same beginning
  char name[kNameBytes];  // of the tensor or bucket: only the beginning of a long one

  void set_name(absl::string_view text) {
    text = ShortName(text, kNameBytes);
    name_bytes = static_cast<uint8_t>(text.size());
    if (!text.empty()) std::memcpy(name, text.data(), text.size());
  }
  absl::string_view name_text() const { return {name, name_bytes}; }

  void set_time(FlightTime at) { time = absl::ToInt64Nanoseconds(at); }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_TIMELINE_TIMELINE_EVENT_H_
