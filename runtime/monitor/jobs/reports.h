// What rondactl prints. Pure functions.
#ifndef RONDA_RUNTIME_MONITOR_JOBS_REPORTS_H_
#define RONDA_RUNTIME_MONITOR_JOBS_REPORTS_H_

#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/monitor/jobs/diagnosis.h"
#include "runtime/monitor/jobs/rank_reader.h"

namespace ronda {

// A rank that was watched, and what it was before.
struct SeenRank {
  RankIdentity identity;
  RankSample before;
  WatchedRank now;
};

// A table with a line a rank: its process, its rates while it was watched, and its place. `lateness` is of the same
// ranks.
std::string RanksTable(absl::Span<const SeenRank> ranks, const Lateness& lateness, absl::Duration watched);

// Who waits for whom, and why; of a job that goes on, who is late. Several lines.
std::string WhyText(absl::Span<const SeenRank> ranks, const Moment& moment);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_REPORTS_H_
