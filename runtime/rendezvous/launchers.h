// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_LAUNCHERS_H_
#define RONDA_RUNTIME_RENDEZVOUS_LAUNCHERS_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"

namespace ronda {

// Reads the job from the environment variables of this process's launcher. Looks for them in this order: RONDA_RANK and
// its companions; torchrun-style variables; Paddle-style variables; those of Open MPI's mpirun, MPICH's mpiexec,
// Slurm's srun, and other process managers with PMI. If none is set, the job has one rank.
//
// Errors: INVALID_ARGUMENT that names the variable, its value and the expected format.
absl::StatusOr<JobEnvironment> ReadJob(const EnvironmentVariables& variables);

// The launchers, in the order in which ReadJob() looks for them. The numbers equal those of the enum ronda_launcher.
enum class Launcher { kNone, kRondarun, kTorchrun, kPaddle, kOpenMpi, kMpich, kSlurm, kPmi };

// The rank of this process and the sizes of its job, according to its launcher.
struct Place {
  Launcher launcher = Launcher::kNone;
  JobEnvironment job;         // a job of one rank if there is no launcher
  std::string store_address;  // where rank 0 may listen for another library; the same on all ranks; empty: not known
  int store_port = 0;
};

// Reads only this process's Place in its job. Does not check whether the ranks can find each other. Accepts incomplete
// variables that are left over from another job (MASTER_PORT without RANK).
//
// Errors: those of ReadJob().
absl::StatusOr<Place> ReadPlace(const EnvironmentVariables& variables);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_LAUNCHERS_H_
