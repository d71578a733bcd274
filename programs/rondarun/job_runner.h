// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_JOB_RUNNER_H_
#define RONDA_PROGRAMS_RONDARUN_JOB_RUNNER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "programs/options/launch_options.h"

namespace ronda {

// rondarun's exit codes for errors that were not caused by a rank.
inline constexpr int kUsageError = 2;
inline constexpr int kLauncherError = 1;

// Runs a job, or only prints its plan (kDryRun). The standard streams of this process must be open, and the process
// must be single-threaded. Returns rondarun's exit code. If it is not 0, the last line on stderr gives the reason.
int RunJob(const LaunchOptions& options);

// Implements `rondarun --agent`, which starts the ranks of this host for a rondarun on another host. That rondarun
// writes its orders to the agent's stdin (agent.h), and reads reports about the ranks from the agent's stdout. When
// stdin ends, the launcher is gone, so the agent kills the ranks.
//
// `network_interfaces` are the interfaces through which this host can be reached; empty: any. Returns the exit code.
int RunAgent(const std::vector<std::string>& network_interfaces);

// Prints "rondarun: MESSAGE" to stderr.
void PrintError(absl::string_view message);

// Prints the error in a command line, and the usage line. Returns kUsageError.
int PrintUsageError(absl::string_view message);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_JOB_RUNNER_H_
