// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_BENCH_HARNESS_LAUNCH_H_
#define RONDA_BENCH_HARNESS_LAUNCH_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/harness/output.h"

namespace ronda::bench {

// The launchers that can start the ranks of a benchmark.
enum class Launcher { kRondarun, kOpenMpi, kMpich };

constexpr const char* Name(Launcher launcher) {
  constexpr const char* kNames[] = {"rondarun", "Open MPI's mpirun", "MPICH's mpiexec"};
  return kNames[static_cast<int>(launcher)];
}

// The rank of this process, the size of its job, and other facts that the launcher has passed on.
struct LaunchedRank {
  int rank = 0;
  int size = 1;
  Launcher launcher = Launcher::kRondarun;
  std::string job_id;  // valid as Ronda's job id, the same on every rank, and different from other jobs'
  // How the ranks find each other. kInMemory: through the shared memory of their one host. kAsInit: as in
  // ronda::init(), if the ranks are on several hosts, or if RONDA_BACKEND needs more than shared memory.
  enum class Rendezvous { kInMemory, kAsInit } rendezvous = Rendezvous::kInMemory;
};

// Reads an environment variable; nullopt if it is unset.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

// Returns a reader of this process' environment.
ReadVariable ProcessVariables();

// Returns nullopt in a process that no launcher has started. `parent` is the parent process' id. This id stands for the
// job, because MPI launchers do not name the job, but are the parents of all ranks of a host. Errors: INVALID_ARGUMENT
// if the launcher's variables make no sense.
absl::StatusOr<std::optional<LaunchedRank>> FindLaunchedRank(const ReadVariable& variable, int parent);

// If the ranks find each other in memory, sets RONDA_RANK, RONDA_SIZE and RONDA_JOB_ID for ronda::init(), as rondarun
// would. In other jobs, ronda::init() needs only the launcher's variables.
void DescribeJobToRonda(const LaunchedRank& launched);

// Whether a peer has its default settings, or the fastest ones on one host.
enum class PeerSetting { kDefault, kBest };

struct LaunchRequest {
  Launcher launcher = Launcher::kRondarun;
  int ranks = 2;
  PeerSetting setting = PeerSetting::kDefault;
  std::vector<std::string> command;  // of every rank
  std::vector<std::string> options;  // of rondarun, before the command
  int user_id = 0;                   // Open MPI runs root's jobs only on request
};

struct LaunchCommand {
  std::vector<std::string> words;                                // the launcher and its arguments, then the command
  std::vector<std::pair<std::string, std::string>> environment;  // in addition to this process' own
  std::string output_file;  // for stdout and stderr of launcher and ranks; "": as this process has them
};

// Returns the path of a program, or "" if the program is not installed.
using FindProgram = std::function<std::string(const std::string& name)>;

// Returns a function that looks for a program beside this executable, where an installation and Bazel's build have it,
// and then in PATH.
FindProgram FindInstalledProgram();

// Errors: NOT_FOUND that names the launcher and how to install it.
absl::StatusOr<LaunchCommand> PlanLaunch(const LaunchRequest& request, const FindProgram& find_program);

// Starts the command. The launcher gets SIGTERM when this process ends, and then ends its ranks. Errors: UNAVAILABLE if
// the system refuses a process.
absl::StatusOr<pid_t> StartLaunch(const LaunchCommand& command);

// Returns the last lines that a command has written to its `output_file`: about 1,000 bytes.
std::string LastLines(const std::string& output_file);

// Receives the messages of rank 0's Output.
using MessageSink = std::function<void(const OutputMessage& message)>;

// Starts the command as StartLaunch() does, passes all messages to `sink`, and waits for the command's end. Returns the
// launcher's exit code, or 128 + N if signal N ended it. Errors: UNAVAILABLE if the system refuses a pipe or a process.
absl::StatusOr<int> RunLaunch(const LaunchCommand& command, const MessageSink& sink);

// Like RunLaunch, but prints text, and draws a progress bar on a terminal. `sink` gets only the messages with results.
absl::StatusOr<int> ShowLaunch(const LaunchCommand& command, const MessageSink& sink);

// Returns the path of this program, or "" if the system does not tell it.
std::string OwnProgram();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_LAUNCH_H_
