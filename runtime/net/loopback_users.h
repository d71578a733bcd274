// SPDX-License-Identifier: Apache-2.0

// The user at the other end of a connection within this host, according to the kernel's lists in /proc/net. A job
// without a secret is on loopback, and its processes accept only processes of the same user.
#ifndef RONDA_RUNTIME_NET_LOOPBACK_USERS_H_
#define RONDA_RUNTIME_NET_LOOPBACK_USERS_H_

#include <sys/types.h>

#include <optional>

#include "absl/status/status.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Returns the user of the process that has connected to `socket`, an accepted connection. nullopt: the caller is on
// another host, or has closed its connection, or the kernel does not list the connection.
std::optional<uid_t> UserOfCaller(int socket);

// Returns the user of the process that listens at `endpoint`. nullopt: no process listens there, or the kernel does not
// list the socket.
std::optional<uid_t> UserOfListener(const Endpoint& endpoint);

// Errors: PERMISSION_DENIED if the caller, or the listener, is a process of this host that belongs neither to this user
// nor to root. CheckCaller also returns this error if a caller of this host has closed its connection, because its user
// is then unknown.
absl::Status CheckCaller(int socket);
absl::Status CheckListener(const Endpoint& endpoint);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_LOOPBACK_USERS_H_
