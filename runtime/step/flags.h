// SPDX-License-Identifier: Apache-2.0

// A flag is a yes-or-no question that a program asks all ranks in each step.
//
// A flag is a tensor of one byte, 0 or 1. The result of a flag is the maximum over all ranks of the job.
// ronda_should_stop() and ronda_elastic_poll() use flags. While no schedule is locked, a flag is negotiated like any
// other tensor. While a schedule is locked, a flag belongs to no bucket, but travels with the vote on the next bucket
// (vote.h). Each rank sends whether it has submitted the flag, and the value of the flag. If all ranks have submitted
// the flag, it is complete together with that bucket. Otherwise the ranks send it again with the vote on the following
// bucket. So a flag needs no bucket of its own, wakes no thread and delays no bucket. If a program waits for a flag and
// submits nothing else, the rank unlocks the schedule, and the flag is negotiated. (Any tensor that waits too long
// makes the rank unlock the schedule.)
#ifndef RONDA_RUNTIME_STEP_FLAGS_H_
#define RONDA_RUNTIME_STEP_FLAGS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ronda {

// The names of all flags. Callers cannot use these names for their own tensors, because the prefix "ronda/" is
// reserved.
inline constexpr absl::string_view kStopFlag = "ronda/should_stop";
inline constexpr absl::string_view kChangeFlag = "ronda/elastic_poll";
inline constexpr absl::string_view kFlagNames[] = {kStopFlag, kChangeFlag};
inline constexpr int kFlagCount = sizeof(kFlagNames) / sizeof(kFlagNames[0]);

// Returns the index of `tensor` in kFlagNames, or nullopt if the tensor is not a flag.
constexpr std::optional<int> FlagOf(absl::string_view tensor) {
  for (int flag = 0; flag < kFlagCount; ++flag) {
    if (tensor == kFlagNames[flag]) return flag;
  }
  return std::nullopt;
}

// Each member has one bit per flag. In the Flags of one rank, `submitted` contains the flags that the rank has
// submitted, and `raised` contains the flags with the value 1. In the combined Flags of all ranks, `submitted` contains
// the flags that every rank has submitted, and `raised` contains the flags that are 1 on some rank.
struct Flags {
  uint8_t submitted = 0;
  uint8_t raised = 0;

  friend bool operator==(const Flags&, const Flags&) = default;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_FLAGS_H_
