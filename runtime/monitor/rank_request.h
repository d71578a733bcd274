// SPDX-License-Identifier: Apache-2.0

// A user's request to a running rank, and the rank's answer, in memory that the user's process shares with the rank.
#ifndef RONDA_RUNTIME_MONITOR_RANK_REQUEST_H_
#define RONDA_RUNTIME_MONITOR_RANK_REQUEST_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace ronda {

// A request to start or stop a timeline.
struct TimelineRequest {
  enum class Kind : uint8_t { kStop, kStart } kind = Kind::kStop;
  std::string path;  // for kStart: absolute; each rank inserts its number (PathOfRank)
};

// The part of a rank's shared memory (RankWords) that contains the request. It is the only part to which another
// process (rondactl) writes. rondactl locks the file while it writes (RankControl). In each step of its progress
// engine, the rank compares `number` with `answered` (HasRequest).
//
// Memory ordering: `number` protects the request and `answered` the answer, as in RankWords. The writer stores 0 to the
// protecting word (`number` or `answered`), then the other words, then the new number, all with release. The reader
// loads the number, then the other words, then the number again, all with acquire. An answer has the same number as its
// request.
struct RankRequestWords {
  static constexpr size_t kPathBytes = 1024;
  static constexpr size_t kTextBytes = 1088;  // for a path with a rank in it

  // Texts end with a zero byte.
  alignas(64) std::atomic<uint64_t> number{0};
  std::atomic<uint64_t> kind{0};
  std::atomic<char> path[kPathBytes] = {};

  // Only the rank writes these.
  alignas(64) std::atomic<uint64_t> answered{0};
  std::atomic<uint64_t> code{0};            // an absl::StatusCode
  std::atomic<char> text[kTextBytes] = {};  // the error, or the path of the file that the rank writes
};

// --- For the process that asks; one at a time ---

// Sends a request to the rank, and returns its number. Replaces an earlier request that the rank has not answered yet.
// Errors: INVALID_ARGUMENT that names the path.
absl::StatusOr<uint64_t> Ask(const TimelineRequest& request, RankRequestWords* words);

// Returns the rank's answer: the path of the file that the rank now writes, or an empty text if it writes none. Returns
// nullopt if the rank has not answered yet.
std::optional<absl::StatusOr<std::string>> AnswerTo(uint64_t number, const RankRequestWords& words);

// --- For the rank ---

inline bool HasRequest(const RankRequestWords& words) {
  return words.number.load(std::memory_order_relaxed) != words.answered.load(std::memory_order_relaxed);
}

// Answers the request with the result of `carry_out`, or with an error if the request is invalid. Does nothing if there
// is no new request, or if another process is writing one.
void AnswerRequest(absl::FunctionRef<absl::StatusOr<std::string>(const TimelineRequest&)> carry_out,
                   RankRequestWords* words);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_RANK_REQUEST_H_
