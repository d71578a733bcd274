#ifndef RONDA_RUNTIME_SHM_FAILURE_RECORD_H_
#define RONDA_RUNTIME_SHM_FAILURE_RECORD_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "runtime/base/types.h"

namespace ronda {

// The first failure of a job, in shared memory; zero bytes are an empty record.
//
// Memory ordering: `state_` goes from empty to "rank r writes" by compare-and-swap, which lets one writer in, and to
// "written" by a release store after the text; a reader's acquire load of "written" thus sees the whole text.
class FailureRecord {
 public:
  // Stores `failure` and returns true, if there is none yet.
  // REQUIRES: !failure.ok().
  bool Set(RankId writer, const absl::Status& failure);

  // Set for a rank that saw `dead` die: `dead` may have died while it was writing, and then its record is taken over.
  bool SetAfterDeathOf(RankId dead, RankId writer, const absl::Status& failure);

  // The failure; OK while there is none. Fields that no writer of ours can have left are INTERNAL.
  absl::Status Get() const;

  // Whether Get would return an error; costs one load.
  bool IsSet() const { return state_.load(std::memory_order_acquire) == kWritten; }

 private:
  static constexpr uint32_t kEmpty = 0;
  static constexpr uint32_t kWritten = 1;
  static constexpr uint32_t kTextBytes = 2000;

  static constexpr uint32_t WrittenBy(RankId rank) { return 2 + static_cast<uint32_t>(rank); }
  bool SetFrom(uint32_t expected, RankId writer, const absl::Status& failure);

  std::atomic<uint32_t> state_{kEmpty};
  uint32_t code_ = 0;
  uint32_t text_bytes_ = 0;
  char text_[kTextBytes] = {};
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_FAILURE_RECORD_H_
