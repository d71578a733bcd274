// What rondarun --check prints: pure, so that any mixture of hosts can be tried.
#ifndef RONDA_RUNTIME_LAUNCH_PREFLIGHT_REPORT_H_
#define RONDA_RUNTIME_LAUNCH_PREFLIGHT_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/launch/host_facts.h"

namespace ronda {

// What has been found out about a host.
struct ProbedHost {
  // An attempt to connect from this host to another.
  struct Unreached {
    std::string host;
    std::string reason;
  };

  std::string host;     // as the user calls it
  int slots = 0;        // ranks it is to take; 0: unknown
  absl::Status status;  // why there are no facts
  HostFacts facts;
  absl::Duration clock_skew;       // how far its clock is ahead of that of the host that checks
  absl::Duration clock_precision;  // and how far that may be off
  std::vector<Unreached> unreached;
};

struct PreflightReport {
  std::string text;                   // a table, a line a host, and what stands out
  std::vector<std::string> problems;  // what keeps a job from running; part of the text
};

PreflightReport MakePreflightReport(const std::vector<ProbedHost>& hosts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PREFLIGHT_REPORT_H_
