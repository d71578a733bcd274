#ifndef RONDA_RUNTIME_LAUNCH_BUILD_REPORT_H_
#define RONDA_RUNTIME_LAUNCH_BUILD_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/environment.h"

namespace ronda {

// The parts that are found when they are needed: what they are, or why they are not there.
struct OptionalParts {
  absl::StatusOr<std::string> open_mpi;  // the library behind libronda_mpi.so
  absl::StatusOr<std::string> mpich;     // and the one behind libronda_mpi_mpich.so
  absl::StatusOr<std::string> cuda;      // the devices that libronda_cuda.so finds
  absl::StatusOr<std::string> nccl;
  absl::StatusOr<std::string> mpirun;
};

// Looks for them as a job with this environment would. The libraries stay loaded.
OptionalParts FindOptionalParts(const EnvironmentReader& environment);

// The text of --check-build: what this build of Ronda contains, what of the rest is there, and why the others are not.
std::string BuildReport(const OptionalParts& parts);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_BUILD_REPORT_H_
