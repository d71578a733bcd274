// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_MONITOR_JOBS_LAST_STEP_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_LAST_STEP_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Returns the events of the flight recorder of ranks[index].
using EventsOfRank = std::function<std::vector<FlightEvent>(size_t index)>;

// Returns the last step that this host's first rank has ended, and whose buckets all ranks of this host have left.
// Returns nullopt if no step has ended yet, or if a rank has overwritten its records of a part of the step. A rank
// keeps records of only the last RankWords::kEntries buckets. The function leaves out ranks of other hosts, because
// their clocks differ.
std::optional<StepRecord> FindLastStep(absl::Span<const RankSnapshot> ranks, const EventsOfRank& events);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_LAST_STEP_H_
