// How mpirun is called.
#ifndef RONDA_RUNTIME_LAUNCH_MPIRUN_COMMAND_H_
#define RONDA_RUNTIME_LAUNCH_MPIRUN_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/launch/hosts.h"
#include "runtime/launch/launch_options.h"

namespace ronda {

// Whose mpirun it is. Hydra is MPICH's, and that of what is derived from MPICH.
enum class Mpirun { kOpenMpi, kHydra };

// Tells it from what `mpirun --version` prints.
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
  enum class StartMark { kGiven, kNone } start_mark = StartMark::kGiven;
};

struct MpirunCommand {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value" for mpirun itself, beside what is to reach the ranks
};

// Pure. Variables are given by name only: their values travel in mpirun's own environment, and no secret is on a
// command line, where all users of the machine can read it. Each piece of output gets a mark that says whose it is
// (TaggedOutput), and each rank begins with one that says that it has started (WithStartMark), if that is wanted. The
// user's --mpi-args come last, so that they replace what is said here.
//
// Errors: UNIMPLEMENTED if this mpirun cannot do what an option asks for.
absl::StatusOr<MpirunCommand> MakeMpirunCommand(const MpirunRequest& request);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_MPIRUN_COMMAND_H_
