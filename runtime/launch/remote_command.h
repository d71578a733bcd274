#ifndef RONDA_RUNTIME_LAUNCH_REMOTE_COMMAND_H_
#define RONDA_RUNTIME_LAUNCH_REMOTE_COMMAND_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/launch/launch_options.h"

namespace ronda {

// The words that run `command` on `host`, which is another one: by ssh, which asks nobody for a password, or by the
// user's own agent.
std::vector<std::string> RemoteCommand(const RemoteOptions& remote, absl::string_view host,
                                       const std::vector<std::string>& command);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_REMOTE_COMMAND_H_
