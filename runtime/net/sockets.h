// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NET_SOCKETS_H_
#define RONDA_RUNTIME_NET_SOCKETS_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// A socket address in the kernel's format.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = sizeof(storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Converts an endpoint to the kernel's format.
// Errors: INVALID_ARGUMENT if the endpoint's address is not a numeric address of its family.
absl::StatusOr<SocketAddress> ToSocketAddress(const Endpoint& endpoint);

// Returns text such as "127.0.0.1:4711" or "[::1]:4711", and "unix" for a Unix domain socket.
std::string NumericText(const SocketAddress& address);

// Returns the port to which a socket is bound. Errors: INTERNAL with the system's text.
absl::StatusOr<int> BoundPort(int fd);

// Returns a non-blocking socket that listens at the endpoint, whose port may be 0. Succeeds even if connections of an
// earlier job are still in TIME_WAIT.
// Errors: ALREADY_EXISTS if another program uses the port; FAILED_PRECONDITION for any other reason.
absl::StatusOr<UniqueFd> ListenAt(const Endpoint& endpoint);

// Returns whether `error` (errno) says that the process or the machine has no descriptor or no memory left for a
// socket. A connection that cannot be accepted for this reason stays in the listener's queue, so the listener stays
// readable.
bool IsShortOfSockets(int error);

// Checks that this host has a route to the endpoint. Errors: FAILED_PRECONDITION with the reason.
absl::Status CheckRoute(const Endpoint& endpoint);

// Returns a non-blocking Unix domain socket that listens at `path`, where it replaces any existing socket. Errors:
// INVALID_ARGUMENT if the path is too long; FAILED_PRECONDITION for any other reason.
absl::StatusOr<UniqueFd> ListenOnPath(const std::string& path);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_SOCKETS_H_
