#ifndef RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_
#define RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// The same message from each of several ranks.
struct SharedReport {
  std::string payload;
  std::vector<RankId> ranks;

  friend bool operator==(const SharedReport&, const SharedReport&) = default;
};

// Reports that wait to travel on to rank 0. Equal ones become one, with the ranks it is from: in a step that all ranks
// report alike, a relay passes on one message, however many ranks are below it.
//
// Of two reports from one rank, the later one is never put before or into one that holds the earlier.
//
// Thread-compatible.
class ReportBatch {
 public:
  // REQUIRES: no rank comes twice in `report`.
  void Add(SharedReport report);

  bool empty() const { return reports_.empty(); }

  // The oldest reports, each with its ranks in ascending order: as many as have at most `max_bytes` of payload
  // together, but one at least. Empty if there are none.
  std::vector<SharedReport> Take(size_t max_bytes);

 private:
  uint64_t next_number() const { return first_number_ + reports_.size(); }
  // The first of all reports that may hold another one from `ranks`.
  uint64_t Earliest(const std::vector<RankId>& ranks) const;
  SharedReport PopFront();

  std::deque<SharedReport> reports_;  // numbered; a deque, so that their payloads stay where they are
  uint64_t first_number_ = 0;         // of reports_.front()
  // Not Abseil's tables, one of which that has found no memory to grow cannot be destroyed: the failure of a rank that
  // has no memory left goes through here.
  std::unordered_map<RankId, uint64_t> last_of_rank_;
  std::unordered_map<std::string_view, uint64_t> last_of_payload_;  // keys lie in reports_
};

// The frames of a stream of the control plane. See proto/ronda/v1/control.proto, field by field.

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

struct ExitFrame {};

// The latest event of a rank, and its age.
struct RankEvent {
  RankId rank = 0;
  FlightKind kind = FlightKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  std::string name;
  uint64_t bytes = 0;
  absl::Duration age;  // whole milliseconds travel
};

struct HeartbeatFrame {
  std::vector<RankEvent> events;
};

using ControlFrame =
    std::variant<ChallengeFrame, HelloFrame, WelcomeFrame, ArrivalFrame, StartFrame, ReportsFrame, BroadcastFrame,
                 CallOffFrame, FailureFrame, DepartureFrame, HeartbeatFrame, ExitFrame>;

std::string Encode(const ControlFrame& frame);

// Errors: INVALID_ARGUMENT if `bytes` are no frame, or name ranks that a job of `size` does not have.
absl::StatusOr<ControlFrame> DecodeControlFrame(absl::string_view bytes, int size);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_
