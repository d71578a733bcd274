// Who holds a job up: from the words of its ranks on one host, and from what the kernel says about their processes.
// Pure functions.
#ifndef RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_
#define RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_

#include <cstddef>
#include <optional>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_snapshot.h"

namespace ronda {

const char* Describe(Holdup holdup);
const char* Name(StragglerVerdict::Kind kind);

// Why ranks[index] is late, if it is. `watched` is how long the processes were.
Holdup WhyLate(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched);

// nullopt if no rank waits for another at this moment, or none has waited longer than `patience`. `watched` is how long
// the processes were, up to `now`.
struct Moment {
  FlightTime now;
  absl::Duration watched;
  absl::Duration patience;
};
std::optional<Standstill> FindStandstill(absl::Span<const RankSnapshot> ranks, const Moment& moment);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_
