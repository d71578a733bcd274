// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_REMOTE_AGENT_H_
#define RONDA_PROGRAMS_RONDARUN_REMOTE_AGENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "programs/options/launch_options.h"

namespace ronda {

// The settings of an agent.
struct AgentOptions {
  std::vector<std::string> network_interfaces;  // on which this host is to be reached; empty: any
  absl::Duration grace_period = absl::Seconds(5);
  // If this agent is a node of an elastic job, its members run the command in `own` with this host's variables, instead
  // of the launcher's command. Not owned. nullptr: the members run the launcher's command.
  const LaunchOptions* own = nullptr;
};

// Why an agent ended.
struct AgentEnd {
  // How the job ended.
  struct Job {
    int exit_code = 0;
    std::string why;
  };

  std::optional<int> ended_by;  // the signal that ended the agent, if any
  std::optional<Job> job;       // nullopt: the launcher has not reported the end
  enum class Launcher { kGone, kSilent } launcher = Launcher::kGone;
};

// Supervises the ranks on this host for a rondarun on another host. That rondarun writes its orders to this process's
// stdin (agent.h), and reads reports about the ranks from this process's stdout. When stdin ends, the ranks are killed.
// The process must be single-threaded. Errors: system errors.
absl::StatusOr<AgentEnd> RunAgentLoop(const AgentOptions& options);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_REMOTE_AGENT_H_
