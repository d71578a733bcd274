// SPDX-License-Identifier: Apache-2.0

// Finds the user at the other end of a connection within this host, from the kernel's lists in /proc/net. A job without
// a secret uses only loopback, and its processes accept connections only from processes of the same user.
#ifndef RONDA_RUNTIME_NET_LOOPBACK_USERS_H_
#define RONDA_RUNTIME_NET_LOOPBACK_USERS_H_

#include <sys/types.h>

#include <optional>

#include "absl/status/status.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// Returns the user of the process that has connected to `socket`, an accepted connection. Returns nullopt if the caller
// is on another host or has closed its connection, or if the kernel's lists lack the connection.
std::optional<uid_t> UserOfCaller(int socket);

// Returns the user of the process that listens at `endpoint`. Returns nullopt if no process listens there, or if the
// kernel does not list the socket.
std::optional<uid_t> UserOfListener(const Endpoint& endpoint);

// Errors: PERMISSION_DENIED if the caller or the listener is a process of this host and belongs to a user other than
// this user and root. If a caller on this host has closed its connection, CheckCaller also returns this error, because
// the caller's user is unknown.
absl::Status CheckCaller(int socket);
absl::Status CheckListener(const Endpoint& endpoint);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_LOOPBACK_USERS_H_
