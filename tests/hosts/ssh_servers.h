// SPDX-License-Identifier: Apache-2.0

// Starts OpenSSH servers on simulated hosts (NetworkHosts).
#ifndef RONDA_TESTS_HOSTS_SSH_SERVERS_H_
#define RONDA_TESTS_HOSTS_SSH_SERVERS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/hosts/network_hosts.h"

namespace ronda::testing {

// An sshd on every host, with keys generated for this test. Processes that a host's sshd starts see the host's name,
// and share one /dev/shm. The servers end when the hosts are removed.
class SshServers {
 public:
  // Returns OK if this machine can run the servers, and otherwise the reason why it cannot.
  static absl::Status Available();

  static absl::StatusOr<std::unique_ptr<SshServers>> Start(const NetworkHosts& hosts);
  ~SshServers();
  SshServers(const SshServers&) = delete;
  SshServers& operator=(const SshServers&) = delete;

  int port() const;

  // Return the paths of private keys. The servers accept identity(), but not foreign_identity().
  std::string identity() const { return directory_ + "/known"; }
  std::string foreign_identity() const { return directory_ + "/foreign"; }

  // Returns a folder with an `ssh` program that knows only the keys of these hosts, and reads no other settings.
  std::string client_directory() const { return directory_ + "/bin"; }

  // Removes this host's key from those that `ssh` knows.
  void Forget(int host);

 private:
  explicit SshServers(const NetworkHosts* hosts);
  absl::Status SetUp();
  void WriteFiles() const;
  void WriteKnownHosts(int but_not) const;

  const NetworkHosts* const hosts_;
  const std::string directory_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_HOSTS_SSH_SERVERS_H_
