// SPDX-License-Identifier: Apache-2.0

// Simulates the hosts of a job with agents, the connections between launcher and agents, and faults of both.
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

// Connects the launcher to agents on other hosts, as ssh does, and causes faults of hosts and connections. A connection
// delivers bytes in pieces of random length. While a connection is cut off, it delivers nothing, and neither end
// notices.
//
// Checks that no host has two agents at a time, and that an agent ends when its launcher sends nothing.
//
// Only virtual threads may use Hosts.
class Hosts {
 public:
  // Runs the agent of a host, in the agent's process, and returns the exit code.
  using RunAgent = std::function<int(const std::string& host, VirtualProcesses::Descriptors descriptors)>;
  Hosts(RunAgent run_agent, std::function<void(const std::string& what)> violate)
      : run_agent_(std::move(run_agent)), violate_(std::move(violate)) {}

  // The program that connects the launcher to a host. Starts an agent on the host, and forwards bytes between launcher
  // and agent. Returns the exit code.
  int Connect(const std::string& host, VirtualProcesses::Descriptors descriptors);

  // Records that the calling process is now the only agent of this job on its host.
  void RecordAgent(const std::string& host);

  // Faults. The functions that return a bool return false if the host has no agent.
  bool KillAgent(const std::string& host);
  bool FreezeAgent(const std::string& host, absl::Duration until);
  // Makes the host's connections deliver nothing before `until`.
  void CutOff(const std::string& host, absl::Duration until);
  // Breaks the host's newest connection, after half of the message in transit has arrived.
  bool Break(const std::string& host);
  // Switches the host off until `until`. Its agents are killed.
  void Lose(const std::string& host, absl::Duration until);

  // Checks the guarantees for agents. Returns whether any agent is alive.
  bool Check();
  bool HasAgent(const std::string& host) const;
  // Returns whether the launcher is allowed to lose the host now, because the host has a fault or had one recently.
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
  // Forwards the bytes that have arrived. Returns false if one direction of the connection has ended.
  bool Pass(Connection* connection);
  // Forwards half of the bytes that have arrived. Returns false if there are none.
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
