// SPDX-License-Identifier: Apache-2.0

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

// A message that several ranks have sent with equal content, and the numbers of these ranks.
struct SharedReport {
  std::string payload;
  std::vector<RankId> ranks;

  friend bool operator==(const SharedReport&, const SharedReport&) = default;
};

// Reports that a rank has not yet forwarded to rank 0. Equal reports become one report, with a list of its senders. So
// if all ranks send equal reports in a step, this rank forwards only one, however many ranks are below it in the tree.
//
// The reports of each rank keep their order. So a report is never merged into one that contains an earlier report of
// the same rank, or into one that is even older.
//
// Thread-compatible.
class ReportBatch {
 public:
  // REQUIRES: no rank occurs twice in `report.ranks`.
  void Add(SharedReport report);

  bool empty() const { return reports_.empty(); }

  // Removes and returns the oldest reports, each with its ranks in ascending order. Together they have at most
  // `max_bytes` of payload, unless the oldest report alone is longer. The result is empty if no report waits.
  std::vector<SharedReport> Take(size_t max_bytes);

 private:
  uint64_t next_number() const { return first_number_ + reports_.size(); }
  // Returns the number of the first report into which another report from `ranks` may be merged.
  uint64_t Earliest(const std::vector<RankId>& ranks) const;
  SharedReport PopFront();

  std::deque<SharedReport> reports_;  // numbered; a deque, so that their payloads stay where they are
  uint64_t first_number_ = 0;         // of reports_.front()
  // These two members are standard tables, because an Abseil table cannot be destroyed after an allocation has failed
  // in it. This code must also work on a rank that fails because it has no memory left.
  std::unordered_map<RankId, uint64_t> last_of_rank_;
  std::unordered_map<std::string_view, uint64_t> last_of_payload_;  // the keys are in reports_
};

// The next structs are the frames between two ranks of the control plane. proto/ronda/v1/control.proto describes each
// field.

// The longest message that a rank may send, and the longest frame.
inline constexpr size_t kMaxControlPayload = size_t{1} << 30;
inline constexpr size_t kMaxControlFrame = kMaxControlPayload + (size_t{64} << 20);

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

struct UnlockRequestFrame {
  uint64_t schedule = 0;
};

struct FailureFrame {
  absl::Status failure;  // not OK
};

struct DepartureFrame {};

struct ExitFrame {};

// The latest event of a rank, and the age of the event.
struct RankEvent {
  RankId rank = 0;
  FlightKind kind = FlightKind::kSubmitted;
  OpType op = OpType::kAllreduce;
  std::string name;
  uint64_t bytes = 0;
  absl::Duration age;  // sent in whole milliseconds
};

struct HeartbeatFrame {
  std::vector<RankEvent> events;
};

using ControlFrame = std::variant<ArrivalFrame, StartFrame, ReportsFrame, BroadcastFrame, UnlockRequestFrame,
                                  FailureFrame, DepartureFrame, HeartbeatFrame, ExitFrame>;

std::string Encode(const ControlFrame& frame);

// Errors: INVALID_ARGUMENT if `bytes` is not a frame, or names a rank that a job of `size` does not have.
absl::StatusOr<ControlFrame> DecodeControlFrame(absl::string_view bytes, int size);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_TREE_CONTROL_FRAME_H_
