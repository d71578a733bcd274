// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_ENGINE_DEVICE_LANE_EXCHANGE_H_
#define RONDA_RUNTIME_ENGINE_DEVICE_LANE_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/group.h"
#include "runtime/base/types.h"
#include "runtime/collectives/transport.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// A gather, a scatter or an alltoall over a lane (caller_lane.h). Each rank knows how many elements it sends to and
// receives from each member, so the ranks need not tell each other.
struct LaneExchange {
  OpType op = OpType::kAlltoall;
  DType dtype = DType::kUint8;
  RankId root = 0;  // of a gather or a scatter
  // One part per member, in the order of the members. See DirectCall for the rules.
  std::vector<DirectPart> sends;
  std::vector<DirectPart> receives;
  StreamHandle stream = nullptr;     // as Submission::stream
  std::optional<WaitLimits> limits;  // nullopt: the job's
};

// Returns whether the lane carries out `op` as an exchange.
constexpr bool IsExchange(OpType op) {
  return op == OpType::kGather || op == OpType::kScatter || op == OpType::kAlltoall;
}

// Checks `exchange` on rank `self`, without looking at the other ranks.
// Errors: INVALID_ARGUMENT, naming the part, the mistake and the remedy.
absl::Status CheckExchange(const LaneExchange& exchange, const Group& members, RankId self);

// Returns addresses that show on which device the parts are. Leaves out a part that directly follows another part in
// memory, because both are in the same allocation.
std::vector<const void*> BuffersOf(const LaneExchange& exchange);

// Returns the number of bytes that the rank sends.
size_t BytesSent(const LaneExchange& exchange);

// The direction of a part.
enum class PartWay : uint8_t { kSends, kReceives };

// What a rank records about a part. The record of the sender must equal the record of the receiver.
struct PartRecord {
  uint64_t count = 0;         // elements
  bool is_in_memory = false;  // has elements, and lies in the lane's memory (LaneMemory)

  friend bool operator==(const PartRecord&, const PartRecord&) = default;
};

// Passes texts for the flight recorder to `record`, which together contain the record of each part. An example is "call
// 17 of lane 1 sends to 0 on: 40mx8 3": 40 elements to each of the members 0 to 7, from the lane's memory, and 3 to
// member 8, from other memory. `call` is "call 17 of lane 1". `is_in_memory` may be asked for any part that has
// elements.
void DescribeParts(absl::string_view call, PartWay way, absl::Span<const DirectPart> parts,
                   absl::FunctionRef<bool(const void* data)> is_in_memory,
                   absl::FunctionRef<void(absl::string_view text)> record);

// Returns the record that the texts in `events` have for the member at `position`; nullopt if no event has it.
std::optional<PartRecord> FindPart(absl::Span<const FlightEvent> events, absl::string_view call, PartWay way,
                                   int position);

}  // namespace ronda

#endif  // RONDA_RUNTIME_ENGINE_DEVICE_LANE_EXCHANGE_H_
