// What the monitor of one host tells that of another about a job's ranks (HostReport in proto/ronda/v1/monitor.proto).
#ifndef RONDA_RUNTIME_MONITOR_SERVE_HOST_REPORT_H_
#define RONDA_RUNTIME_MONITOR_SERVE_HOST_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/jobs/job_snapshot.h"

namespace ronda {

// The ranks of `job` that are on this host; `now` is on this host's clock.
std::string EncodeHostReport(const JobSnapshot& job, FlightTime now);

// `asked` and `answered` are when the question went and its answer came, on this host's clock, onto which the times of
// the report are brought: it was written in the middle. Leaves `address` and `round_trip` to others.
// Errors: INVALID_ARGUMENT if the bytes are no report, or tell of what no rank does.
struct Exchange {
  FlightTime asked;
  FlightTime answered;
};
absl::StatusOr<OtherHost> DecodeHostReport(absl::string_view bytes, const Exchange& exchange);

}  // namespace ronda

#endif  // RONDA_RUNTIME_MONITOR_SERVE_HOST_REPORT_H_
