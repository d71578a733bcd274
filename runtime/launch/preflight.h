#ifndef RONDA_RUNTIME_LAUNCH_PREFLIGHT_H_
#define RONDA_RUNTIME_LAUNCH_PREFLIGHT_H_

#include <string>
#include <vector>

#include "runtime/launch/launch_options.h"
#include "runtime/launch/preflight_report.h"

namespace ronda {

// rondarun --check: asks all hosts of `options` at the same time, starting `program` (the path of rondarun, which must
// be the same everywhere) as a probe on each of them, lets them try to reach each other, and reports. Hosts with one of
// the names `own` are this one; the others are asked through the agent or ssh.
PreflightReport CheckHosts(const LaunchOptions& options, const std::string& program,
                           const std::vector<std::string>& own);

// Checks, and prints the report. Returns the exit code: 1 if something keeps a job from running.
int RunPreflight(const LaunchOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PREFLIGHT_H_
