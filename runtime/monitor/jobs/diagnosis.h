// Who holds a job up: from the words of its ranks on one host, and from what the kernel says about their processes.
// Pure functions.
#ifndef RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_
#define RONDA_RUNTIME_MONITOR_JOBS_DIAGNOSIS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_snapshot.h"

namespace ronda {

const char* Describe(Holdup holdup);
const char* Name(StragglerVerdict::Kind kind);

// Why ranks[index] is late, if it is. `watched` is how long the processes were.
Holdup WhyLate(absl::Span<const RankSnapshot> ranks, size_t index, absl::Duration watched);

// To the ranks of another host.
struct HostLink {
  std::string host;
  std::vector<RankId> ranks;
  absl::Duration round_trip;
};

// The host to which messages take longer than they do between hosts of one network, and much longer than to others,
// while all ranks spend their time in buckets. With several other hosts, of which all are far, it is this one.
std::optional<SlowNetwork> FindSlowNetwork(absl::Span<const RankSnapshot> ranks, const std::vector<HostLink>& links);

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
