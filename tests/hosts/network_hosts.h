// SPDX-License-Identifier: Apache-2.0

// Several hosts on one machine: network namespaces joined by a bridge.
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

// Hosts that reach each other over one network, which this machine is on too. Each has a name, an address, an interface
// "eth0", a loopback of its own and, for processes that agent() starts there, a /dev/shm and a hostname of its own.
//
// Needs root and iproute2. Names contain this process' id; the next test removes the remains of a killed one.
class NetworkHosts {
 public:
  enum class Family { kIPv4, kIPv6 };
  struct Options {
    int count = 2;
    Family family = Family::kIPv4;
    // kRelayed: what hosts send goes through this process, which can delay it, as not every kernel has netem.
    enum class Cables { kOfTheKernel, kRelayed } cables = Cables::kOfTheKernel;
  };

  // OK if hosts can be made here; else the reason.
  static absl::Status Available();

  static absl::StatusOr<std::unique_ptr<NetworkHosts>> Create(const Options& options);
  ~NetworkHosts();
  NetworkHosts(const NetworkHosts&) = delete;
  NetworkHosts& operator=(const NetworkHosts&) = delete;

  int count() const { return options_.count; }
  std::string NameOf(int host) const;
  std::string AddressOf(int host) const;
  // The name of this machine's interface on their network.
  const std::string& interface() const { return bridge_; }
  // Open MPI's parameters that keep it to this network.
  std::vector<std::pair<std::string, std::string>> MpiNetwork() const;

  // A program that is called like ssh, AGENT HOST COMMAND..., and runs the command on that host.
  const std::string& agent() const { return agent_; }

  // Runs a command on a host, as the agent does.
  absl::Status RunOn(int host, const std::string& command) const;

  // Limits the rate at which each host sends, in Mbit/s.
  absl::Status LimitRate(double mbit);

  // From now on all that the host sends is under way for so much longer.
  // REQUIRES: Options::kRelayed.
  void DelaySending(int host, absl::Duration delay);

  // Kills all processes on a host.
  void KillAllOn(int host) const;

  // Pulls the plug of a host, and puts it back in.
  absl::Status CutOff(int host);
  absl::Status Reconnect(int host);

 private:
  explicit NetworkHosts(const Options& options);
  absl::Status SetUp();
  absl::Status AddHost(int host);
  absl::Status AddCable(int host);
  absl::Status WriteAgent();
  std::string LinkOf(int host) const;  // the bridge's end of its cable
  std::string AddressIn(int number) const;

  const Options options_;
  const std::string id_;
  const std::string bridge_;
  std::string agent_;
  class Relay;
  std::vector<std::unique_ptr<Relay>> relays_;  // of kRelayed, by host
};

// A job that mpirun starts across hosts.
struct HostsJob {
  std::vector<int> slots;         // ranks of each host
  std::vector<std::string> argv;  // of each rank
  std::vector<std::string> mpirun_options;
  std::vector<std::pair<std::string, std::string>> env;
  absl::Duration timeout = absl::Seconds(180);
};

// The command line of Open MPI's mpirun for it.
std::vector<std::string> MpirunAcross(const NetworkHosts& hosts, const HostsJob& job);

// Runs the job; the output interleaves that of its ranks.
ProcessResult RunAcross(const NetworkHosts& hosts, const HostsJob& job);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_HOSTS_NETWORK_HOSTS_H_
