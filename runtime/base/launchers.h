#ifndef RONDA_RUNTIME_BASE_LAUNCHERS_H_
#define RONDA_RUNTIME_BASE_LAUNCHERS_H_

#include "absl/status/statusor.h"
#include "runtime/base/environment_variables.h"
#include "runtime/base/job_environment.h"

namespace ronda {

// Reads what the launcher of this process says about the job. In this order: RONDA_RANK and what goes with it;
// torchrun-style variables; Paddle-style ones; those of Open MPI's mpirun, MPICH's mpiexec, Slurm's srun, and other
// process managers with PMI. Without any of them the job has one rank.
//
// Errors: INVALID_ARGUMENT that names the variable, its value, and what it should be.
absl::StatusOr<JobEnvironment> ReadJob(const EnvironmentVariables& variables);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_LAUNCHERS_H_
