#ifndef RONDA_RUNTIME_BASE_JOB_ENVIRONMENT_H_
#define RONDA_RUNTIME_BASE_JOB_ENVIRONMENT_H_

#include <optional>
#include <string>

namespace ronda {

// How MPI gets into a job.
struct MpiEnvironment {
  // Whose launcher has started this process, and so which library's MPI_Init finds the other ranks.
  enum class Launcher { kNone, kOpenMpi, kMpich } launcher = Launcher::kNone;
  // kAutomatic: if ranks are on several hosts, or cannot meet otherwise.
  enum class Use { kAutomatic, kNever, kAlways } use = Use::kAutomatic;
  std::string plugin;  // the plugin's path; empty: to be looked for

  bool IsUsable() const { return use != Use::kNever && (launcher != Launcher::kNone || !plugin.empty()); }
};

// How the ranks of this job find each other, as the environment says it.
struct JobEnvironment {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;
  std::optional<int> local_size;
  std::optional<int> cross_rank;
  std::optional<int> cross_size;
  std::string job_id;          // the same on every rank, and no other job's: names the shared memory
  std::string job_secret;      // set by rondarun or the user; proves membership on control connections
  std::string master_address;  // where rank 0 listens; empty: the ranks meet by job id or MPI
  int master_port = 0;
  MpiEnvironment mpi;
  std::string source;  // "rondarun", "torchrun-style variables", "single process", for messages

  // As far as the launcher says; true if it does not.
  bool IsOnOneHost() const { return local_size.value_or(size) == size && cross_size.value_or(1) == 1; }
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_BASE_JOB_ENVIRONMENT_H_
