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

// The rank of this process, the size of its job, and other facts that it learned from the launcher.
struct LaunchedRank {
  int rank = 0;
  int size = 1;
  Launcher launcher = Launcher::kRondarun;
  std::string job_id;  // valid as Ronda's job id, the same on every rank, and different from other jobs'
  // How the ranks find each other. kInMemory: through shared memory, on a single host. kAsInit: as in ronda::init(), if
  // the ranks are on several hosts, or if RONDA_BACKEND needs more than shared memory.
  enum class Rendezvous { kInMemory, kAsInit } rendezvous = Rendezvous::kInMemory;
};

// Reads an environment variable; nullopt if it is unset.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

// Returns a ReadVariable for the environment of this process.
ReadVariable ProcessVariables();

// Returns nullopt if no launcher has started this process. `parent` is the id of the parent process. It identifies the
// job: MPI launchers give the job no name, but one launcher process is the parent of all ranks on a host. Errors:
// INVALID_ARGUMENT if the launcher's variables are invalid.
absl::StatusOr<std::optional<LaunchedRank>> FindLaunchedRank(const ReadVariable& variable, int parent);

// If the ranks find each other in memory, sets RONDA_RANK, RONDA_SIZE and RONDA_JOB_ID for ronda::init(), as rondarun
// would. In other jobs, ronda::init() needs only the launcher's variables.
void DescribeJobToRonda(const LaunchedRank& launched);

// Whether a peer runs with its default settings, or with the settings that are fastest on one host.
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

// Returns a function that looks for a program in the folders, relative to this executable, where an installation and
// the Bazel build put it, and then in PATH.
FindProgram FindInstalledProgram();

// Errors: NOT_FOUND, with a text that names the launcher and says how to install it.
absl::StatusOr<LaunchCommand> PlanLaunch(const LaunchRequest& request, const FindProgram& find_program);

// Starts the command. When this process ends, the launcher receives SIGTERM and then ends its ranks. Errors:
// UNAVAILABLE if the process cannot be started.
absl::StatusOr<pid_t> StartLaunch(const LaunchCommand& command);

// Returns the last lines, about 1,000 bytes, that a command has written to its `output_file`.
std::string LastLines(const std::string& output_file);

// Receives the messages of rank 0's Output.
using MessageSink = std::function<void(const OutputMessage& message)>;

// Starts the command as StartLaunch() does, passes all messages to `sink`, and waits until the command exits. Returns
// the launcher's exit code, or 128 + N if signal N killed the launcher. Errors: UNAVAILABLE if the pipe cannot be
// created or the process cannot be started.
absl::StatusOr<int> RunLaunch(const LaunchCommand& command, const MessageSink& sink);

// Like RunLaunch, but prints text messages, and draws a progress bar on a terminal. `sink` receives only the messages
// with results.
absl::StatusOr<int> ShowLaunch(const LaunchCommand& command, const MessageSink& sink);

// Returns the path of this program, or "" if it cannot be determined.
std::string OwnProgram();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_HARNESS_LAUNCH_H_
