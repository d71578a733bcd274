// SPDX-License-Identifier: Apache-2.0

#include "tests/hosts/ssh_servers.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

constexpr int kPort = 2222;
constexpr char kServer[] = "/usr/sbin/sshd";
constexpr char kClient[] = "/usr/bin/ssh";
constexpr char kKeyMaker[] = "/usr/bin/ssh-keygen";

std::string TestDirectory() {
  const char* const directory = getenv("TEST_TMPDIR");
  return absl::StrCat(directory == nullptr ? "/tmp" : directory, "/ssh-", getpid());
}

absl::Status MakeKey(const std::string& file) {
  const ProcessResult made =
      RunProcesses({.argv = {kKeyMaker, "-q", "-t", "ed25519", "-N", "", "-f", file}}).ranks.front();
  return made.exit_code == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat(kKeyMaker, ": ", made.output));
}

std::string ContentsOf(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

}  // namespace

absl::Status SshServers::Available() {
  for (const char* program : {kServer, kClient, kKeyMaker}) {
    if (access(program, X_OK) == 0) continue;
    return absl::FailedPreconditionError(absl::StrCat("there is no ", program, " (package openssh-server)"));
  }
  return absl::OkStatus();
}

SshServers::SshServers(const NetworkHosts* hosts) : hosts_(hosts), directory_(TestDirectory()) {}

SshServers::~SshServers() { std::filesystem::remove_all(directory_); }

absl::StatusOr<std::unique_ptr<SshServers>> SshServers::Start(const NetworkHosts& hosts) {
  auto servers = std::unique_ptr<SshServers>(new SshServers(&hosts));
  RONDA_RETURN_IF_ERROR(servers->SetUp());
  return servers;
}

int SshServers::port() const { return kPort; }

void SshServers::Forget(int host) { WriteKnownHosts(host); }

absl::Status SshServers::SetUp() {
  std::filesystem::create_directories(client_directory());
  for (const std::string& file : {directory_ + "/host", identity(), foreign_identity()}) {
    RONDA_RETURN_IF_ERROR(MakeKey(file));
  }
  WriteFiles();
  WriteKnownHosts(-1);
  for (int host = 0; host < hosts_->count(); ++host) {
    // sshd needs the empty directory /run/sshd, which not every machine has. RunOn returns once sshd listens.
    RONDA_RETURN_IF_ERROR(
        hosts_->RunOn(host, absl::StrCat("mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec ", kServer,
                                         " -f ", directory_, "/sshd_config")));
  }
  return absl::OkStatus();
}

void SshServers::WriteFiles() const {
  std::ofstream(directory_ + "/sshd_config") << "Port " << kPort << "\nHostKey " << directory_ << "/host\n"
                                             << "AuthorizedKeysFile " << identity() << ".pub\n"
                                             << "UsePAM no\nStrictModes no\nPermitRootLogin prohibit-password\n"
                                             << "PasswordAuthentication no\nPidFile none\n";
  std::ofstream(directory_ + "/ssh_config")
      << "GlobalKnownHostsFile none\nUserKnownHostsFile " << directory_ << "/known_hosts\nStrictHostKeyChecking yes\n";
  const std::string client = client_directory() + "/ssh";
  std::ofstream(client) << "#!/bin/sh\nexec " << kClient << " -F " << directory_ << "/ssh_config \"$@\"\n";
  std::filesystem::permissions(client, std::filesystem::perms::owner_all);
}

void SshServers::WriteKnownHosts(int but_not) const {
  std::ofstream file(directory_ + "/known_hosts");
  const std::string key = ContentsOf(directory_ + "/host.pub");
  for (int host = 0; host < hosts_->count(); ++host) {
    if (host != but_not) file << "[" << hosts_->AddressOf(host) << "]:" << kPort << " " << key;
  }
}

}  // namespace ronda::testing
