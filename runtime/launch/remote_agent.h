#ifndef RONDA_RUNTIME_LAUNCH_REMOTE_AGENT_H_
#define RONDA_RUNTIME_LAUNCH_REMOTE_AGENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/launch/options/launch_options.h"

namespace ronda {

// How an agent is to do its work.
struct AgentOptions {
  std::vector<std::string> network_interfaces;  // on which this host is to be reached; empty: any
  absl::Duration grace_period = absl::Seconds(5);
  // Of a node of an elastic job: its members run this command, with this host's variables, and not the launcher's. Not
  // owned; nullptr: they do as the launcher says.
  const LaunchOptions* own = nullptr;
};

// Why an agent has ended.
struct AgentEnd {
  // How the job has ended.
  struct Job {
    int exit_code = 0;
    std::string why;
  };

  std::optional<int> ended_by;  // a signal to the agent
  std::optional<Job> job;       // nullopt: the launcher has not said
  enum class Launcher { kGone, kSilent } launcher = Launcher::kGone;
};

// Looks after the ranks of this host for a rondarun elsewhere, which sends its orders on stdin (agent.h) and reads on
// stdout how the ranks fare. When stdin ends the ranks are killed. The process must be single-threaded.
// Errors: the system's.
absl::StatusOr<AgentEnd> RunAgentLoop(const AgentOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_REMOTE_AGENT_H_
