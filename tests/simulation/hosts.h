// SPDX-License-Identifier: Apache-2.0

// The hosts of a simulated job that has agents, the connections between the launcher and the agents, and their faults.
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

// Leads the launcher to agents on other hosts, as ssh does, and brings faults to hosts and connections. A connection
// passes the bytes in pieces of random length. If it is cut off, nothing passes for a while, and neither end notices.
//
// Checks that no host has two agents at a time, and that an agent ends if it hears nothing from its launcher.
//
// Only virtual threads use it.
class Hosts {
 public:
  // Runs the agent of a host in the agent's process, and returns the exit code.
  using RunAgent = std::function<int(const std::string& host, VirtualProcesses::Descriptors descriptors)>;
  Hosts(RunAgent run_agent, std::function<void(const std::string& what)> violate)
      : run_agent_(std::move(run_agent)), violate_(std::move(violate)) {}

  // Runs the program that connects the launcher to a host. The program starts an agent on the host, and passes bytes.
  // Returns the exit code.
  int Connect(const std::string& host, VirtualProcesses::Descriptors descriptors);

  // Records that the calling process is now the only agent of this job on its host.
  void RecordAgent(const std::string& host);

  // Faults. A function with a result returns false if the host has no agent.
  bool KillAgent(const std::string& host);
  bool FreezeAgent(const std::string& host, absl::Duration until);
  // The connections of the host deliver nothing before `until`.
  void CutOff(const std::string& host, absl::Duration until);
  // The newest connection breaks, and half of the message under way arrives.
  bool Break(const std::string& host);
  // The host loses its power, and has it again at `until`. Its agents are killed.
  void Lose(const std::string& host, absl::Duration until);

  // Checks the agents' promises. Returns whether an agent lives.
  bool Check();
  bool HasAgent(const std::string& host) const;
  // Whether the launcher may lose the host now because of a fault.
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
  // Passes on the bytes that have arrived. Returns false when one direction of the connection has ended.
  bool Pass(Connection* connection);
  // Passes on half of the bytes that have arrived. Returns false if none have arrived.
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
