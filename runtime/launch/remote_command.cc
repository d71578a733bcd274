#include "runtime/launch/remote_command.h"

#include "absl/strings/str_cat.h"
#include "runtime/launch/shell_quote.h"

namespace ronda {

std::vector<std::string> RemoteCommand(const RemoteOptions& remote, absl::string_view host,
                                       const std::vector<std::string>& command) {
  const std::string line = absl::StrCat("exec ", ShellQuote(command));
  if (!remote.agent.empty()) return {remote.agent, std::string(host), line};
  // A host that has gone is to be noticed, and no terminal is to change what comes back.
  std::vector<std::string> words = {
      "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10"};
  if (remote.ssh_port != 0) words.insert(words.end(), {"-p", absl::StrCat(remote.ssh_port)});
  if (!remote.ssh_identity_file.empty()) words.insert(words.end(), {"-i", remote.ssh_identity_file});
  words.insert(words.end(), {std::string(host), line});
  return words;
}

}  // namespace ronda
