// SPDX-License-Identifier: Apache-2.0

// Simulates the agent of a host of a simulated job.
#ifndef RONDA_TESTS_SIMULATION_AGENT_H_
#define RONDA_TESTS_SIMULATION_AGENT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "programs/rondarun/elastic/agent_members.h"
#include "programs/rondarun/output/output_sinks.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/agent_report.h"
#include "runtime/base/unique_fd.h"
#include "tests/simulation/virtual_processes.h"
#include "tests/simulation/virtual_supervisor.h"

namespace ronda::simulation {

// Supervises the members on its host, as the production agent does. The agent's messages and reports, the members, and
// the check that the host has only one agent are production code. Only the event loop, VirtualSupervisor, is not.
class Agent {
 public:
  struct Options {
    std::string host;
    // Makes the supervised part of a member, as MemberProcesses::MakeMember does.
    MemberProcesses::MakeMember make_member;
    // Called when this process becomes the only agent of the host.
    std::function<void()> on_only_one;
  };
  Agent(Options options, VirtualProcesses::Descriptors descriptors);

  // Returns the agent's exit code.
  int Run();

 private:
  // Reads the launcher's next messages. Returns false if there can be no more.
  bool ReadMore();
  // Waits until the launcher tells the agent to begin. Returns false if the agent has nothing left to do.
  bool AwaitOrder();
  absl::Status Become();
  void Obey();
  void Flush();

  const Options options_;
  VirtualProcesses::Descriptors descriptors_;
  OutputQueue output_;
  AgentReport report_;
  VirtualSupervisor supervisor_;
  AgentMessageReader reader_{AgentMessageReader::Stream::kMessages};
  std::vector<AgentMessage> messages_;  // messages that have arrived and are still to be handled
  std::string job_id_;
  AgentPart::SignsOfLife signs_;
  bool is_ordered_ = false;
  UniqueFd name_;
  AgentMembers* members_ = nullptr;  // the supervisor owns it
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_AGENT_H_
