// SPDX-License-Identifier: Apache-2.0

// Makes the command line of mpirun.
#ifndef RONDA_PROGRAMS_RONDARUN_PLAN_MPIRUN_COMMAND_H_
#define RONDA_PROGRAMS_RONDARUN_PLAN_MPIRUN_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/options/hosts.h"
#include "programs/options/launch_options.h"

namespace ronda {

// The kind of an mpirun. Hydra is the mpirun of MPICH, and of MPIs derived from MPICH.
enum class Mpirun { kOpenMpi, kHydra };

// Recognises the kind from the output of `mpirun --version`.
// Errors: UNIMPLEMENTED that quotes the output, and names the known kinds.
absl::StatusOr<Mpirun> DetectMpirun(absl::string_view version_text);

struct MpirunRequest {
  Mpirun mpirun = Mpirun::kOpenMpi;
  enum class User { kRoot, kOther } user = User::kOther;
  int rank_count = 0;
  std::vector<HostSlots> hosts;  // empty: this host
  RemoteOptions remote;
  LaunchOptions::Binding binding = LaunchOptions::Binding::kNone;
  absl::Duration grace_period = absl::Seconds(5);  // from SIGTERM to SIGKILL
  std::vector<std::string> variables;              // names of the variables that all ranks get
  std::vector<std::string> command;
  int ranks_per_host = 0;  // on every host; 0: they differ, or mpirun places ranks as the user has asked
  // Whether each rank begins with a shell, which prints a mark and sets the variables of the rank's place.
  enum class Lead { kShell, kNone } lead = Lead::kShell;
};

struct MpirunCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value" for mpirun itself, beside those for the ranks
};

// Makes the command. Pure. Variables are given only by name, and their values travel in mpirun's own environment. So no
// secret is on a command line, which all users of the machine can read. Each piece of output gets a mark with its rank
// (TaggedOutput). The shell at the start of a rank prints a mark that shows the start (WithStartMark). The user's
// --mpi-args come last, so they replace arguments of rondarun.
//
// Errors: UNIMPLEMENTED if this mpirun cannot carry out an option.
absl::StatusOr<MpirunCommand> MakeMpirunCommand(const MpirunRequest& request);

// Returns the output of `mpirun --version` for the mpirun in PATH.
// Errors: NOT_FOUND that names the package to install, if there is no mpirun; FAILED_PRECONDITION with mpirun's output
// if it failed.
absl::StatusOr<std::string> MpirunVersion();

// Returns "Open MPI 4.1.4" or "MPICH 4.0.2", from the output of `mpirun --version`. If it is neither, returns the first
// line of the output.
std::string ShortMpiVersion(absl::string_view text);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_MPIRUN_COMMAND_H_
