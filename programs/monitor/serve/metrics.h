// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_SERVE_METRICS_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_METRICS_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda {

// If the monitor knows more than kMostRanks ranks of a job, only kWorstRanks ranks have their own series: those for
// which the other ranks have waited longest. The values of all other ranks are combined under the rank "others".
inline constexpr size_t kMostRanks = 256;
inline constexpr size_t kWorstRanks = 16;

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// Returns the jobs in the Prometheus text format. `clock_zero` is the time at which the clock of flight recorders was
// zero. A pure function. metrics.cc has the table of metrics.
std::string MetricsText(absl::Span<const JobSnapshot> jobs, absl::Time clock_zero);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_METRICS_H_
