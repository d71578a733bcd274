// SPDX-License-Identifier: Apache-2.0

// Builds the command line of mpirun.
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

// The kinds of mpirun. Hydra is the mpirun of MPICH and of MPI libraries derived from MPICH.
enum class Mpirun { kOpenMpi, kHydra };

// Detects the kind of an mpirun from the output of `mpirun --version`. Errors: UNIMPLEMENTED if the kind is unknown;
// the text quotes the output and lists the known kinds.
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
  // kShell: mpirun starts a shell for each rank, which prints a mark, sets the variables of the rank's place, and runs
  // the rank's command.
  enum class Lead { kShell, kNone } lead = Lead::kShell;
};

struct MpirunCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value" for mpirun itself, beside those for the ranks
};

// Builds the command line of mpirun. It contains only the names of the ranks' variables; mpirun passes on their values
// from its own environment. So no secret is on a command line, which all users of the machine can read. mpirun marks
// each piece of output with its rank (TaggedOutput). The shell that starts a rank prints a mark to show that the rank
// has started (WithStartMark). The user's --mpi-args come last, so they override rondarun's arguments.
//
// Errors: UNIMPLEMENTED if this kind of mpirun does not support one of the options.
absl::StatusOr<MpirunCommand> MakeMpirunCommand(const MpirunRequest& request);

// Returns the output of `mpirun --version` for the mpirun in PATH. Errors: NOT_FOUND if there is no mpirun; the text
// names the package to install. FAILED_PRECONDITION, with the output of mpirun, if mpirun failed.
absl::StatusOr<std::string> MpirunVersion();

// Extracts "Open MPI 4.1.4" or "MPICH 4.0.2" from the output of `mpirun --version`. For any other output, returns its
// first line.
std::string ShortMpiVersion(absl::string_view text);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_PLAN_MPIRUN_COMMAND_H_
