#ifndef RONDA_RUNTIME_BOOTSTRAP_THIS_HOST_H_
#define RONDA_RUNTIME_BOOTSTRAP_THIS_HOST_H_

#include <string>

namespace ronda {

// The name of this host, for messages; "localhost" if it has none.
std::string HostName();

// Of the running kernel, which containers share: another one after every start of the machine; empty if there is none.
std::string BootId();

// Equal for two processes if they can share memory and see each other's pids: the running kernel, its /dev/shm and the
// pid namespace. Containers of one machine that share neither count as different hosts.
std::string HostId();

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_THIS_HOST_H_
