// SPDX-License-Identifier: Apache-2.0

// Finds the rank that holds a job up. The functions use data of the job's ranks (RankSample), and data of the kernel
// about their processes. All functions in this file are pure.
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

// Returns why ranks[index] is late. The function assumes that this rank is late. `watched` is the time during which the
// processes were watched.
Holdup WhyLate(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched);

// Describes the network connection to the ranks of another host.
struct HostLink {
  std::string host;
  std::vector<RankId> ranks;
  absl::Duration round_trip;
};

// Returns the host to which messages take longer than between hosts of one network, and much longer than to other
// hosts. Returns nullopt unless all ranks spend their time in buckets. If messages to each of several other hosts take
// long, returns the host on which this program runs.
std::optional<SlowNetwork> FindSlowNetwork(absl::Span<const RankSnapshot> ranks, const std::vector<HostLink>& links);

// FindStandstill() returns nullopt if no rank waits for another at this moment, or if no rank has waited longer than
// `threshold`. `watched` is the time during which the processes were watched, and `now` is the end of that time.
struct Moment {
  FlightTime now;
  absl::Duration watched;
  absl::Duration threshold;
};
std::optional<Standstill> FindStandstill(absl::Span<const RankSnapshot> ranks, const Moment& moment);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_JOBS_DIAGNOSIS_H_
