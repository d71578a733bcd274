// SPDX-License-Identifier: Apache-2.0

// Flags: yes-or-no questions of a program that are asked of all ranks in each step.
//
// A flag is a tensor of one byte, 0 or 1, of which all ranks of the job take the maximum. ronda_should_stop() and
// ronda_elastic_poll() ask with flags. While no schedule is locked, a flag is negotiated like any other tensor. While a
// schedule is locked, a flag belongs to no bucket. It travels with the vote on the next bucket (vote.h): each rank says
// whether it has submitted the flag, and its value. If all ranks have submitted the flag, it is complete with that
// bucket. Otherwise the flag travels with the vote on the bucket after that. So a flag needs no bucket of its own,
// wakes no thread and delays no bucket. Only if a program waits for a flag and submits nothing else does the rank
// unlock, as for any tensor that waits in vain; then the flag is negotiated.
#ifndef RONDA_RUNTIME_STEP_FLAGS_H_
#define RONDA_RUNTIME_STEP_FLAGS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace ronda {

// The names of all flags. Callers cannot give their own tensors these names, because of the reserved prefix "ronda/".
inline constexpr absl::string_view kStopFlag = "ronda/should_stop";
inline constexpr absl::string_view kChangeFlag = "ronda/elastic_poll";
inline constexpr absl::string_view kFlagNames[] = {kStopFlag, kChangeFlag};
inline constexpr int kFlagCount = sizeof(kFlagNames) / sizeof(kFlagNames[0]);

// The number of the flag with this name, its index in kFlagNames; nullopt if the tensor is no flag.
constexpr std::optional<int> FlagOf(absl::string_view tensor) {
  for (int flag = 0; flag < kFlagCount; ++flag) {
    if (tensor == kFlagNames[flag]) return flag;
  }
  return std::nullopt;
}

// One bit for each flag, by its number. For one rank, `submitted` has the flags that it has submitted, and `raised` has
// the flags with the value 1. For all ranks, `submitted` has the flags that every rank has submitted, and `raised` has
// the flags that are 1 on some rank.
struct Flags {
  uint8_t submitted = 0;
  uint8_t raised = 0;

  friend bool operator==(const Flags&, const Flags&) = default;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_STEP_FLAGS_H_
