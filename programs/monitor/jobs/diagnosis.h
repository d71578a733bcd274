// SPDX-License-Identifier: Apache-2.0

// Finds the rank that holds up a job. The functions use the samples of the job's ranks (RankSample), and what the
// kernel reports about the ranks' processes. All functions in this file are pure.
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

// Returns why ranks[index] is late, assuming that it is. `watched` is how long the processes were watched.
Holdup WhyLate(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched);

// The network connection to the ranks on another host.
struct HostLink {
  std::string host;
  std::vector<RankId> ranks;
  absl::Duration round_trip;
};

// Returns the host with the longest round trip, if that round trip is too long for one network and, if there are links
// to several hosts, much longer than the shortest one. Returns nullopt unless every rank spends much of its time in
// buckets. If the round trips to all of several other hosts are about that long, returns the host on which this program
// runs.
std::optional<SlowNetwork> FindSlowNetwork(absl::Span<const RankSnapshot> ranks, const std::vector<HostLink>& links);

// FindStandstill() returns nullopt if no rank is waiting for another, or if no rank has waited longer than `threshold`.
// `watched` is how long the processes were watched, and `now` is the end of that time.
struct Moment {
  FlightTime now;
  absl::Duration watched;
  absl::Duration threshold;
};
std::optional<Standstill> FindStandstill(absl::Span<const RankSnapshot> ranks, const Moment& moment);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_DIAGNOSIS_H_
