#ifndef RONDA_BENCH_LAUNCH_H_
#define RONDA_BENCH_LAUNCH_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/output.h"
#include "bench/place.h"

namespace ronda::bench {

// How a peer is set up: as it comes, or as it is fastest on one host.
enum class PeerSetting { kDefault, kBest };

struct LaunchRequest {
  Launcher launcher = Launcher::kRondarun;
  int ranks = 2;
  PeerSetting setting = PeerSetting::kDefault;
  std::vector<std::string> command;  // what every rank runs
  int user_id = 0;                   // Open MPI wants to be told that root means it
};

struct LaunchCommand {
  std::vector<std::string> words;                                // the launcher and its arguments, then the command
  std::vector<std::pair<std::string, std::string>> environment;  // in addition to this process' own
};

// Where a program is; empty if it is not installed.
using FindProgram = std::function<std::string(const std::string& name)>;

// Looks beside this executable (as installed, and as Bazel builds it), then in PATH.
FindProgram FindInstalledProgram();

// Errors: NOT_FOUND that names the launcher and how to install it.
absl::StatusOr<LaunchCommand> PlanLaunch(const LaunchRequest& request, const FindProgram& find_program);

// Takes what rank 0 says through its Output.
using MessageSink = std::function<void(const OutputMessage& message)>;

// Starts the command, hands all messages to `sink`, and waits for its end. If this process ends before, the command
// gets SIGTERM. Returns the launcher's exit code, or 128 + N if signal N ended it. Errors: UNAVAILABLE if the system
// refuses a pipe or a process.
absl::StatusOr<int> RunLaunch(const LaunchCommand& command, const MessageSink& sink);

// The same; prints text, and draws a progress bar if there is a terminal. `sink` gets the other messages: results.
absl::StatusOr<int> ShowLaunch(const LaunchCommand& command, const MessageSink& sink);

// The file of this program. "" if the system does not say.
std::string OwnProgram();

}  // namespace ronda::bench

#endif  // RONDA_BENCH_LAUNCH_H_
