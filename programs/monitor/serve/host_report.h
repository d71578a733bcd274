// SPDX-License-Identifier: Apache-2.0

// Encodes and decodes the report in which one host's monitor describes a job's ranks to another host's monitor
// (HostReport in proto/ronda/v1/monitor.proto).
#ifndef RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_
#define RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "programs/monitor/jobs/job_snapshot.h"
#include "runtime/monitor/flight_recorder.h"

namespace ronda {

// Encodes the ranks of `job` that are on this host. `now` is the time on this host's clock.
std::string EncodeHostReport(const JobSnapshot& job, FlightTime now);

// Decodes a report, and converts its times to this host's clock. `asked` is when this host sent the question, and
// `answered` is when the answer came, both on this host's clock. The function assumes that the report was written in
// the middle between `asked` and `answered`. Leaves `address` and `round_trip` of the result unset.
// Errors: INVALID_ARGUMENT if the bytes are no report, or contain values that no rank can have.
struct Exchange {
  FlightTime asked;
  FlightTime answered;
};
absl::StatusOr<OtherHost> DecodeHostReport(absl::string_view bytes, const Exchange& exchange);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_MONITOR_SERVE_HOST_REPORT_H_
