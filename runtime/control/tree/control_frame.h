// What ranks say to each other over a stream of the control plane. See proto/ronda/v1/control.proto, field by field.
#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/control/tree/report_batch.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Longest message that a rank may send, and longest frame.
inline constexpr size_t kMaxControlPayload = size_t{1} << 30;
inline constexpr size_t kMaxControlFrame = kMaxControlPayload + (size_t{64} << 20);

struct ChallengeFrame {
  std::string nonce;
};

struct HelloFrame {
  RankId rank = 0;
  int size = 0;
  std::string job_id;
  std::string nonce;
  std::string proof;
};

struct WelcomeFrame {
  std::string proof;
};

struct ArrivalFrame {
  std::vector<RankId> ranks;
};

struct StartFrame {};

struct ReportsFrame {
  std::vector<SharedReport> reports;
};

struct BroadcastFrame {
  std::string payload;
};

struct CallOffFrame {
  uint64_t schedule = 0;
};

struct FailureFrame {
  absl::Status failure;  // not OK
};

struct DepartureFrame {};

// What a rank did last, so long ago.
struct Act {
  RankId rank = 0;
  FlightKind kind = FlightKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  std::string name;
  uint64_t bytes = 0;
  absl::Duration age;  // whole milliseconds travel
};

struct HeartbeatFrame {
  std::vector<Act> acts;
};

using ControlFrame = std::variant<ChallengeFrame, HelloFrame, WelcomeFrame, ArrivalFrame, StartFrame, ReportsFrame,
                                  BroadcastFrame, CallOffFrame, FailureFrame, DepartureFrame, HeartbeatFrame>;

std::string Encode(const ControlFrame& frame);

// Errors: INVALID_ARGUMENT if `bytes` are no frame, or name ranks that a job of `size` does not have.
absl::StatusOr<ControlFrame> DecodeControlFrame(absl::string_view bytes, int size);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_
