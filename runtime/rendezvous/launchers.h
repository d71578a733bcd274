#ifndef RONDA_RUNTIME_RENDEZVOUS_LAUNCHERS_H_
#define RONDA_RUNTIME_RENDEZVOUS_LAUNCHERS_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/base/environment.h"

namespace ronda {

// Reads the job from the variables of the launcher of this process. In this order: RONDA_RANK and its companions;
// torchrun-style variables; Paddle-style ones; those of Open MPI's mpirun, MPICH's mpiexec, Slurm's srun, and other
// process managers with PMI. Without any of them the job has one rank.
//
// Errors: INVALID_ARGUMENT that names the variable, its value, and its proper form.
absl::StatusOr<JobEnvironment> ReadJob(const EnvironmentVariables& variables);

// The launchers, in this order, as ronda_launcher numbers them.
enum class Launcher { kNone, kRondarun, kTorchrun, kPaddle, kOpenMpi, kMpich, kSlurm, kPmi };

// What the launcher of this process says of its place in the job.
struct Place {
  Launcher launcher = Launcher::kNone;
  JobEnvironment job;         // of one rank without a launcher
  std::string store_address;  // where rank 0 may listen for another library, as all ranks know; empty: not known
  int store_port = 0;
};

// Reads the place alone. Whether the ranks can meet is not looked at, and a rest of another job's variables
// (MASTER_PORT without RANK) is no error.
//
// Errors: as ReadJob().
absl::StatusOr<Place> ReadPlace(const EnvironmentVariables& variables);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_LAUNCHERS_H_
