#ifndef RONDA_RUNTIME_LAUNCH_REMOTE_AGENT_H_
#define RONDA_RUNTIME_LAUNCH_REMOTE_AGENT_H_

#include <string>
#include <vector>

namespace ronda {

// `rondarun --agent`: starts the ranks of this host for a rondarun on another one, which tells it on stdin what to
// start (agent_message.h) and hears on stdout what becomes of them. The end of stdin means that the other one is gone:
// the ranks are killed.
//
// `network_interfaces` are those on which this host is to be reached; empty: any. Returns the exit code.
int RunAgent(const std::vector<std::string>& network_interfaces);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_REMOTE_AGENT_H_
