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

// The events of the flight recorder of ranks[index].
using EventsOfRank = std::function<std::vector<FlightEvent>(size_t index)>;

// The last step that this host's first rank has ended, and all of whose buckets every rank of this host has left.
// nullopt: no step has ended yet, or a rank has overwritten its entries into a part of the step (a rank keeps
// RankWords::kEntries of them). Ranks of other hosts are left out, because their clocks differ.
std::optional<StepRecord> FindLastStep(absl::Span<const RankSnapshot> ranks, const EventsOfRank& events);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_LAST_STEP_H_
