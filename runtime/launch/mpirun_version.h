#ifndef RONDA_RUNTIME_LAUNCH_MPIRUN_VERSION_H_
#define RONDA_RUNTIME_LAUNCH_MPIRUN_VERSION_H_

#include <string>

#include "absl/status/statusor.h"

namespace ronda {

// What the mpirun in PATH prints when asked for its version.
// Errors: NOT_FOUND that says what to install if there is none; FAILED_PRECONDITION with what it printed if it failed.
absl::StatusOr<std::string> MpirunVersion();

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_MPIRUN_VERSION_H_
