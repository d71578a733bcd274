// SPDX-License-Identifier: Apache-2.0

// Simulates several hosts on one machine, by network namespaces that a bridge connects.
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

// Hosts that reach each other over one network. The machine of the test is also on the hosts' network. Each host has a
// separate name, address, interface "eth0" and loopback interface. Processes that agent() starts on a host also see a
// separate /dev/shm and the host's name.
//
// Needs root and iproute2. The names of namespaces and interfaces contain this process's id. The next test removes what
// a killed test has left.
class NetworkHosts {
 public:
  enum class Family { kIPv4, kIPv6 };
  struct Options {
    int count = 2;
    Family family = Family::kIPv4;
    // With kRelayed all data between hosts goes through this process, which can delay the data. The tests delay data in
    // this way because not every kernel has netem.
    enum class Cables { kOfTheKernel, kRelayed } cables = Cables::kOfTheKernel;
  };

  // Returns OK if this machine can simulate hosts, otherwise the reason why not.
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
  // Returns the parameters with which Open MPI uses only this network.
  std::vector<std::pair<std::string, std::string>> MpiNetwork() const;

  // Returns the path of a program that is called like ssh (AGENT HOST COMMAND...) and runs the command on that host.
  const std::string& agent() const { return agent_; }

  // Runs a command on a host, as the agent does.
  absl::Status RunOn(int host, const std::string& command) const;

  // Limits the rate at which each host sends, in Mbit/s.
  absl::Status LimitRate(double mbit);

  // Delays everything that the host sends from now on by `delay`.
  // REQUIRES: Options::kRelayed.
  void DelaySending(int host, absl::Duration delay);

  // Kills all processes on a host.
  void KillAllOn(int host) const;

  // Disconnects a host from the network, and connects it again.
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

// A job that mpirun starts across hosts.
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
