// SPDX-License-Identifier: Apache-2.0

// Finds the rank that holds a job up. The sources are the job's ranks (RankSample), and the kernel's facts about their
// processes. Pure functions.
#ifndef RONDA_PROGRAMS_MONITOR_JOBS_DIAGNOSIS_H_
#define RONDA_PROGRAMS_MONITOR_JOBS_DIAGNOSIS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

const char* Describe(Holdup holdup);
const char* Name(StragglerVerdict::Kind kind);

// The reason why ranks[index] is late, if it is late. The processes were watched for the time `watched`.
Holdup WhyLate(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched);

// The connection to the ranks of another host.
struct HostLink {
  std::string host;
  std::vector<RankId> ranks;
  absl::Duration round_trip;
};

// Returns the host to which messages take longer than between hosts of one network, and much longer than to other
// hosts. Returns none unless all ranks spend their time in buckets. If messages to each of several other hosts take
// long, returns this host.
std::optional<SlowNetwork> FindSlowNetwork(absl::Span<const RankSnapshot> ranks, const std::vector<HostLink>& links);

// Returns nullopt if no rank waits for another at this moment, or if no rank has waited longer than `threshold`. The
// processes were watched for the time `watched`, which ended at `now`.
struct Moment {
  FlightTime now;
  absl::Duration watched;
  absl::Duration threshold;
};
std::optional<Standstill> FindStandstill(absl::Span<const RankSnapshot> ranks, const Moment& moment);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_DIAGNOSIS_H_
