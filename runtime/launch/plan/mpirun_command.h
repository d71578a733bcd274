// How mpirun is called.
#ifndef RONDA_RUNTIME_LAUNCH_PLAN_MPIRUN_COMMAND_H_
#define RONDA_RUNTIME_LAUNCH_PLAN_MPIRUN_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/launch/options/hosts.h"
#include "runtime/launch/options/launch_options.h"

namespace ronda {

// The make of an mpirun. Hydra is that of MPICH, and of MPIs derived from MPICH.
enum class Mpirun { kOpenMpi, kHydra };

// Tells it from the output of `mpirun --version`.
// Errors: UNIMPLEMENTED that quotes it, and says which ones are known.
absl::StatusOr<Mpirun> DetectMpirun(absl::string_view version_text);

struct MpirunRequest {
  Mpirun mpirun = Mpirun::kOpenMpi;
  enum class User { kRoot, kOther } user = User::kOther;
  int rank_count = 0;
  std::vector<HostSlots> hosts;  // empty: this host
  RemoteOptions remote;
  LaunchOptions::Binding binding = LaunchOptions::Binding::kNone;
  absl::Duration grace_period = absl::Seconds(5);  // from SIGTERM to SIGKILL
  std::vector<std::string> variables;              // names of those that all ranks get
  std::vector<std::string> command;
  int ranks_per_host = 0;  // of each host; 0: they differ, or mpirun places ranks as the user has asked it to
  // Whether a shell leads each rank, which prints a mark and sets the variables of the place.
  enum class Lead { kShell, kNone } lead = Lead::kShell;
};

struct MpirunCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value" for mpirun itself, beside those for the ranks
};

// Pure. Variables are given by name only: their values travel in mpirun's own environment, and no secret is on a
// command line, where all users of the machine can read it. Each piece of output gets a mark that says whose it is
// (TaggedOutput), and the shell that leads a rank prints one that says that it has started (WithStartMark). The user's
// --mpi-args come last, so that they replace arguments of rondarun.
//
// Errors: UNIMPLEMENTED if this mpirun cannot carry out an option.
absl::StatusOr<MpirunCommand> MakeMpirunCommand(const MpirunRequest& request);

// The output of `mpirun --version`, of the mpirun in PATH.
// Errors: NOT_FOUND that names the package to install if there is none; FAILED_PRECONDITION with its output if it
// failed.
absl::StatusOr<std::string> MpirunVersion();

// "Open MPI 4.1.4" or "MPICH 4.0.2" of the output of `mpirun --version`; its first line if that is
// neither.
std::string ShortMpiVersion(absl::string_view text);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_PLAN_MPIRUN_COMMAND_H_
