// What the launcher says of ranks that do not start.
#ifndef RONDA_RUNTIME_LAUNCH_LATE_START_H_
#define RONDA_RUNTIME_LAUNCH_LATE_START_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/types.h"

namespace ronda {

// A rank that nobody has started yet, as far as is known, and where it is to run.
struct AwaitedRank {
  RankId rank = 0;
  std::string host;

  bool operator==(const AwaitedRank&) const = default;
};

// "ranks 2 and 3 (host beta) were not started within 30s: ...", and what to look at.
// REQUIRES: `ranks` is not empty.
std::string DescribeLateStart(const std::vector<AwaitedRank>& ranks, absl::Duration timeout);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_LATE_START_H_
