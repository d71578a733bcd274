// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_SERVE_JOB_JSON_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_JOB_JSON_H_

#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "programs/monitor/jobs/job_snapshot.h"

namespace ronda {

// Returns the jobs as JSON, for the page and for other programs; docs/metrics.md describes the fields. Durations are in
// seconds; times are in seconds since 1970. `clock_zero` is the time at which the clock of flight recorders was zero. A
// pure function.
std::string JobsJson(absl::Span<const JobSnapshot> jobs, absl::Time clock_zero);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_JOB_JSON_H_
