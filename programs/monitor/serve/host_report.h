// SPDX-License-Identifier: Apache-2.0

// The report of one host's monitor to another's about a job's ranks (HostReport in proto/ronda/v1/monitor.proto).
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Encodes the ranks of `job` on this host. `now` is on this host's clock.
std::string EncodeHostReport(const JobSnapshot& job, FlightTime now);

// Decodes a report, and converts its times to this host's clock. `asked` and `answered` are the times of the question
// and of its answer on this host's clock. The report is taken to be written in the middle between these times. Does not
// set `address` and `round_trip`.
// Errors: INVALID_ARGUMENT if the bytes are no report, or contain values that no rank can have.
struct Exchange {
  FlightTime asked;
  FlightTime answered;
};
absl::StatusOr<OtherHost> DecodeHostReport(absl::string_view bytes, const Exchange& exchange);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_
