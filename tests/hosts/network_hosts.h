// SPDX-License-Identifier: Apache-2.0

// Simulates several hosts on one machine, as network namespaces that a bridge connects.
#ifndef RONDA_TESTS_HOSTS_NETWORK_HOSTS_H_
#define RONDA_TESTS_HOSTS_NETWORK_HOSTS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {

// Hosts on one network, to which the test's machine is also connected. Each host has its own name, address, interface
// "eth0" and loopback interface. Processes that agent() starts on a host also have their own /dev/shm, and see the
// host's name.
//
// Needs root and iproute2. The names of the namespaces and interfaces contain this process's id, so that the next test
// can remove what a killed test has left.
class NetworkHosts {
 public:
  enum class Family { kIPv4, kIPv6 };
  struct Options {
    int count = 2;
    Family family = Family::kIPv4;
    // With kRelayed, all data between hosts passes through this process, which can delay it. The tests do not use netem
    // for that, because not every kernel has it.
    enum class Cables { kOfTheKernel, kRelayed } cables = Cables::kOfTheKernel;
  };

  // Returns OK if this machine can simulate hosts, and otherwise the reason why it cannot.
  static absl::Status Available();

  static absl::StatusOr<std::unique_ptr<NetworkHosts>> Create(const Options& options);
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  int count() const { return options_.count; }
  std::string NameOf(int host) const;
  std::string AddressOf(int host) const;
  // Returns the name of this machine's interface on the hosts' network.
  const std::string& interface() const { return bridge_; }
  // Returns the parameters that restrict Open MPI to this network.
  std::vector<std::pair<std::string, std::string>> MpiNetwork() const;

  // Returns the path of a program with the usage of ssh (AGENT HOST COMMAND...), which runs the command on that host.
  const std::string& agent() const { return agent_; }

  // Runs a command on a host, as the agent does.
  absl::Status RunOn(int host, const std::string& command) const;

  // Limits the rate at which each host sends, in Mbit/s.
  absl::Status LimitRate(double mbit);

  // Delays everything that the host sends from now on. REQUIRES: Options::kRelayed.
  void DelaySending(int host, absl::Duration delay);

  // Kills all processes on a host.
  void KillAllOn(int host) const;

  // CutOff disconnects a host from the network, and Reconnect connects it again.
  absl::Status CutOff(int host);
  absl::Status Reconnect(int host);

 private:
  explicit NetworkHosts(const Options& options);
  absl::Status SetUp();
  absl::Status AddHost(int host);
  absl::Status AddCable(int host);
  absl::Status WriteAgent();
  std::string LinkOf(int host) const;  // the bridge's end of the host's cable
  std::string AddressIn(int number) const;

  const Options options_;
  const std::string id_;
  const std::string bridge_;
  std::string agent_;
  class Relay;
  std::vector<std::unique_ptr<Relay>> relays_;  // by host; only with kRelayed
};

// A job that mpirun starts on several hosts.
struct HostsJob {
  std::vector<int> slots;         // ranks of each host
  std::vector<std::string> argv;  // of each rank
  std::vector<std::string> mpirun_options;
  std::vector<std::pair<std::string, std::string>> env;
  absl::Duration timeout = absl::Seconds(180);
};

// Returns the command line of Open MPI's mpirun for the job.
std::vector<std::string> MpirunAcross(const NetworkHosts& hosts, const HostsJob& job);

// Runs the job. The result's output interleaves the outputs of the ranks.
ProcessResult RunAcross(const NetworkHosts& hosts, const HostsJob& job);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_HOSTS_NETWORK_HOSTS_H_
