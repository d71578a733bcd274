// SPDX-License-Identifier: Apache-2.0

// The basic types of the runtime: ranks, shapes, process sets, kinds of memory and wait limits. operation.h has the
// types of operations.
#ifndef RONDA_RUNTIME_BASE_TYPES_H_
#define RONDA_RUNTIME_BASE_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/dtype.h"
#include "runtime/base/operation.h"

namespace ronda {

// The number of a process (or thread) in the job, 0 <= rank < size. Rank 0 is the coordinator.
using RankId = int;

inline constexpr RankId kCoordinatorRank = 0;

// Dimensions of a tensor, outermost first; {} is a scalar.
using Shape = std::vector<int64_t>;

// Returns the number of elements of a tensor with this shape, which is 1 for a scalar.
inline int64_t ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

// Returns a text such as "[128, 10]".
inline std::string ToString(const Shape& shape) { return "[" + absl::StrJoin(shape, ", ") + "]"; }

// The id of a process set, which is a group of ranks that run collectives among themselves. Ids are assigned in the
// order of creation, are the same on every rank, and are never reused.
using ProcessSetId = uint32_t;

// The id of the process set of all ranks of the job.
inline constexpr ProcessSetId kGlobalProcessSet = 0;

// Where a tensor's buffers are. Numeric values are part of the C ABI (ronda_memory) and of the protocol.
enum class Memory : uint8_t { kHost = 0, kCuda = 1 };
inline constexpr int kMemoryCount = 2;

constexpr const char* Name(Memory memory) { return memory == Memory::kHost ? "host" : "cuda"; }

constexpr std::optional<Memory> MemoryFromInt(int64_t value) {
  if (value < 0 || value >= kMemoryCount) return std::nullopt;
  return static_cast<Memory>(value);
}

// How long an operation waits for a rank before Ronda logs a warning, and before the operation fails. Infinite means
// never.
struct WaitLimits {
  absl::Duration warning = absl::Seconds(60);
  absl::Duration deadline = absl::Minutes(10);

  friend bool operator==(const WaitLimits&, const WaitLimits&) = default;
};

// Returns how long a rank waits for the coordinator's answer. The coordinator fails a stalled tensor at the deadline,
// so the result is the deadline plus a margin. A rank that gets no answer by then concludes that the coordinator is no
// longer running.
inline absl::Duration AnswerDeadline(const WaitLimits& limits) {
  return limits.deadline + std::max(absl::Seconds(1), limits.deadline / 4);
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_TYPES_H_
