// SPDX-License-Identifier: Apache-2.0

// Encodes and decodes the report that one host's monitor sends to another host's monitor about a job's ranks
// (HostReport in proto/ronda/v1/monitor.proto).
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Encodes those ranks of `job` that are on this host. `now` is the time on this host's clock.
std::string EncodeHostReport(const JobSnapshot& job, FlightTime now);

// Decodes a report, and converts its times to this host's clock. `asked` is when this host sent the request, and
// `answered` is when it received the reply, both on this host's clock. Assumes that the report was written halfway
// between the two. Leaves `address` and `round_trip` of the result unset. Errors: INVALID_ARGUMENT if the bytes are not
// a report, or contain values that no rank can have.
struct Exchange {
  FlightTime asked;
  FlightTime answered;
};
absl::StatusOr<OtherHost> DecodeHostReport(absl::string_view bytes, const Exchange& exchange);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_
