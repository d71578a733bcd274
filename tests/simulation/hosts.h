// SPDX-License-Identifier: Apache-2.0

// Simulates the hosts of a job with agents, the connections between the launcher and the agents, and faults of both.
#ifndef RONDA_TESTS_SIMULATION_HOSTS_H_
#define RONDA_TESTS_SIMULATION_HOSTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"
#include "tests/simulation/virtual_processes.h"
#include "tests/simulation/virtual_threads.h"

namespace ronda::simulation {

// Connects the launcher with agents on other hosts, as ssh does, and causes faults of hosts and connections. A
// connection passes bytes in pieces of random length. If a fault cuts a connection off, no bytes pass for a while, and
// neither end notices.
//
// Checks that no host has two agents at a time, and that an agent ends if its launcher sends nothing.
//
// Only virtual threads use Hosts.
class Hosts {
 public:
  // Runs the agent of a host in the agent's process, and returns the exit code.
  using RunAgent = std::function<int(const std::string& host, VirtualProcesses::Descriptors descriptors)>;
  Hosts(RunAgent run_agent, std::function<void(const std::string& what)> violate)
      : run_agent_(std::move(run_agent)), violate_(std::move(violate)) {}

  // Runs the program that connects the launcher with a host. The program starts an agent on the host, and passes bytes
  // between launcher and agent. Returns the exit code.
  int Connect(const std::string& host, VirtualProcesses::Descriptors descriptors);

  // Records that the calling process is now the only agent of this job on its host.
  void RecordAgent(const std::string& host);

  // Faults. The functions that return a bool return false if the host has no agent.
  bool KillAgent(const std::string& host);
  bool FreezeAgent(const std::string& host, absl::Duration until);
  // Makes the connections of the host deliver nothing before `until`.
  void CutOff(const std::string& host, absl::Duration until);
  // Breaks the newest connection of the host, after half of the message under way has arrived.
  bool Break(const std::string& host);
  // Switches the host off until the time `until`. The host's agents are killed.
  void Lose(const std::string& host, absl::Duration until);

  // Checks the promises of the agents. Returns whether any agent is alive.
  bool Check();
  bool HasAgent(const std::string& host) const;
  // Returns whether the launcher may lose the host now, because the host has had a fault.
  bool MayBeLost(const std::string& host) const;
  uint64_t agents() const { return agents_started_; }
  uint64_t broken() const { return broken_; }

 private:
  struct Agent {
    ProcessId process = 0;
    bool is_only_one = false;
    absl::Duration heard;  // when its last bytes arrived, or could be read
  };
  struct Host {
    std::vector<Agent> agents;
    absl::Duration cut_until = -absl::InfiniteDuration();
    absl::Duration hurt_until = -absl::InfiniteDuration();
    bool breaks = false;  // whether the newest connection has to break
  };
  struct Way;
  struct Connection;

  void Carry(Connection* connection);
  bool AwaitHost(const Connection& connection);
  void StartAgent(Connection* connection);
  // Passes on the bytes that have arrived. Returns false if one direction of the connection has ended.
  bool Pass(Connection* connection);
  // Passes on half of the bytes that have arrived. Returns false if no bytes have arrived.
  bool PassHalf(Connection* connection);
  Agent* LivingAgent(Host* host);
  static absl::Duration now() { return VirtualWorld::Get().now(); }

  const RunAgent run_agent_;
  const std::function<void(const std::string& what)> violate_;
  std::map<std::string, Host> hosts_;
  uint64_t agents_started_ = 0;
  uint64_t broken_ = 0;
};

}  // namespace ronda::simulation

#endif  // RONDA_TESTS_SIMULATION_HOSTS_H_
