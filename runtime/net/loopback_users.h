// SPDX-License-Identifier: Apache-2.0

// Looks up the user at the other end of a loopback connection in /proc/net. A job without a secret uses only loopback,
// and its processes only accept connections from the same user.
#ifndef RONDA_RUNTIME_NET_LOOPBACK_USERS_H_
#define RONDA_RUNTIME_NET_LOOPBACK_USERS_H_

#include <sys/types.h>

#include <optional>

#include "absl/status/status.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Returns the user of the process at the other end of `socket`, an accepted connection. Returns nullopt if that process
// is on another host or has closed the connection, or if the kernel does not list the connection.
std::optional<uid_t> UserOfCaller(int socket);

// Returns the user of the process that listens at `endpoint`, or nullopt if the kernel lists no such socket.
std::optional<uid_t> UserOfListener(const Endpoint& endpoint);

// Errors: PERMISSION_DENIED if the caller or listener is a process on this host that belongs neither to this user nor
// to root. CheckCaller() also returns this error for a caller on this host that has already closed its connection,
// because its user is then unknown.
absl::Status CheckCaller(int socket);
absl::Status CheckListener(const Endpoint& endpoint);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_LOOPBACK_USERS_H_
