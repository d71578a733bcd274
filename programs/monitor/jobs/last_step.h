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

// Returns the events in the flight recorder of ranks[index].
using EventsOfRank = std::function<std::vector<FlightEvent>(size_t index)>;

// Returns the newest step that the first rank on this host has finished, and whose buckets all ranks on this host have
// left. Returns nullopt if no step has ended yet, or if a rank has overwritten some of its records of the step. A rank
// keeps only the records of its last RankWords::kEntries buckets. Ignores ranks on other hosts, because their clocks
// differ.
std::optional<StepRecord> FindLastStep(absl::Span<const RankSnapshot> ranks, const EventsOfRank& events);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_LAST_STEP_H_
