#ifndef RONDA_RUNTIME_LAUNCH_JOB_RUNNER_H_
#define RONDA_RUNTIME_LAUNCH_JOB_RUNNER_H_

#include "runtime/launch/launch_options.h"

namespace ronda {

// Exit codes of rondarun where no rank decides.
inline constexpr int kUsageError = 2;
inline constexpr int kLauncherError = 1;

// Does what kRun and kDryRun ask for, on the standard streams of this process, which must be open and
// single-threaded. Returns rondarun's exit code; its last line on stderr says why, unless it is 0.
int RunJob(const LaunchOptions& options);

// Prints "rondarun: MESSAGE" to stderr.
void PrintError(absl::string_view message);

// Prints what is wrong with the command line and how it should look. Returns kUsageError.
int PrintUsageError(absl::string_view message);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_JOB_RUNNER_H_
