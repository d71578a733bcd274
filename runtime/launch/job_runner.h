#ifndef RONDA_RUNTIME_LAUNCH_JOB_RUNNER_H_
#define RONDA_RUNTIME_LAUNCH_JOB_RUNNER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/launch/options/launch_options.h"

namespace ronda {

// Exit codes of rondarun where no rank decides.
inline constexpr int kUsageError = 2;
inline constexpr int kLauncherError = 1;

// Runs a job, or shows it (kDryRun), on the standard streams of this process, which must be open. The process must be
// single-threaded. Returns rondarun's exit code; its last line on stderr says why, unless it is 0.
int RunJob(const LaunchOptions& options);

// `rondarun --agent`: starts the ranks of this host for a rondarun on another one, which sends its
// orders on stdin (agent.h) and reads on stdout how the ranks fare. The end of stdin means that the other one
// is gone: the ranks are killed.
//
// `network_interfaces` are those on which this host is to be reached; empty: any. Returns the exit code.
int RunAgent(const std::vector<std::string>& network_interfaces);

// Prints "rondarun: MESSAGE" to stderr.
void PrintError(absl::string_view message);

// Prints the error of a command line and its right form. Returns kUsageError.
int PrintUsageError(absl::string_view message);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_RUNNER_H_
