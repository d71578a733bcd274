#ifndef RONDA_RUNTIME_TCP_SOCKET_ADDRESS_H_
#define RONDA_RUNTIME_TCP_SOCKET_ADDRESS_H_

#include <sys/socket.h>

#include "absl/status/statusor.h"
#include "runtime/control/rendezvous/endpoint.h"

namespace ronda {

// An endpoint as the kernel wants it.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Errors: INVALID_ARGUMENT if the endpoint's address is not a numeric one of its family.
absl::StatusOr<SocketAddress> ToSocketAddress(const Endpoint& endpoint);

// The port that a socket of ours is bound to.
// Errors: INTERNAL with the system's text.
absl::StatusOr<int> BoundPort(int fd);

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_SOCKET_ADDRESS_H_
