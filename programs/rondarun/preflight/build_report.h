// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_PREFLIGHT_BUILD_REPORT_H_
#define RONDA_PROGRAMS_RONDARUN_PREFLIGHT_BUILD_REPORT_H_

#include <string>

#include "absl/status/statusor.h"
#include "programs/rondarun/plan/mpirun_command.h"
#include "runtime/base/environment.h"

namespace ronda {

// The optional parts of Ronda. Ronda looks for such a part only when it needs the part. Each field holds the name and
// version of the part, or the reason why it is missing.
struct OptionalParts {
  absl::StatusOr<std::string> open_mpi;  // the library behind libronda_mpi.so
  absl::StatusOr<std::string> mpich;     // the library behind libronda_mpi_mpich.so
  absl::StatusOr<std::string> hosts;     // the gRPC of libronda_hosts.so
  absl::StatusOr<std::string> cuda;      // the devices that libronda_cuda.so finds
  absl::StatusOr<std::string> nccl;
  absl::StatusOr<std::string> mpirun;
};

// Returns the MPI library that Ronda's plugin uses in ranks that this mpirun starts, such as "Open MPI v4.1.4". `path`
// is the value of RONDA_MPI_PLUGIN, or empty. Forks, like FindOptionalParts. Errors: NOT_FOUND if the plugin cannot be
// loaded; the text says where it should be, and what it needs.
absl::StatusOr<std::string> FindMpiPlugin(Mpirun mpirun, const std::string& path);

// Returns the library that Ronda's plugin for several hosts uses, such as "gRPC 1.51.1". `path` is the value of
// RONDA_HOSTS_PLUGIN, or empty.
absl::StatusOr<std::string> FindHostsPlugin(const std::string& path);

// Looks for the optional parts where a job with this environment would look. The CUDA and NCCL libraries stay loaded.
//
// The process must be single-threaded, because this function forks.
OptionalParts FindOptionalParts(const EnvironmentReader& environment);

// Returns the text of --check-build: the parts of this build of Ronda, the optional parts that were found, and the
// reasons why others are missing.
std::string BuildReport(const OptionalParts& parts);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PREFLIGHT_BUILD_REPORT_H_
