// SPDX-License-Identifier: Apache-2.0

// Starts OpenSSH's servers on hosts that are network namespaces.
#ifndef RONDA_TESTS_HOSTS_SSH_SERVERS_H_
#define RONDA_TESTS_HOSTS_SSH_SERVERS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/hosts/network_hosts.h"

namespace ronda::testing {

// An sshd on every host, with keys made for this test. The processes of a host's sshd see the host's name, and share
// one /dev/shm. The servers end when the hosts are removed.
class SshServers {
 public:
  // Returns OK if this machine can run the servers, otherwise the reason why not.
  static absl::Status Available();

  static absl::StatusOr<std::unique_ptr<SshServers>> Start(const NetworkHosts& hosts);
  ~SshServers();
  SshServers(const SshServers&) = delete;
  SshServers& operator=(const SshServers&) = delete;

  int port() const;

  // Return the paths of two private keys. The servers accept the first key, but not the second.
  std::string identity() const { return directory_ + "/known"; }
  std::string foreign_identity() const { return directory_ + "/foreign"; }

  // Returns a folder that contains an `ssh` program for these hosts. The `ssh` program knows only the keys of these
  // hosts, and reads no other settings.
  std::string client_directory() const { return directory_ + "/bin"; }

  // Removes the key of this host from the hosts' keys that `ssh` knows.
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
