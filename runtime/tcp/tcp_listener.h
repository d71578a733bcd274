#ifndef RONDA_RUNTIME_TCP_TCP_LISTENER_H_
#define RONDA_RUNTIME_TCP_TCP_LISTENER_H_

#include <sys/socket.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
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

// Where other ranks reach this one with data. It is opened before the ranks know of each other, so that its address can
// travel with the membership; who calls early waits in the kernel's queue for ConnectTcp. Thread-compatible.
class TcpListener {
 public:
  // Listens on `endpoint` only, whose port may be 0.
  // Errors: FAILED_PRECONDITION with the system's text.
  static absl::StatusOr<std::unique_ptr<TcpListener>> Start(const Endpoint& endpoint);

  const Endpoint& endpoint() const { return endpoint_; }  // with its port
  int fd() const { return socket_.get(); }                // non-blocking

 private:
  TcpListener(Endpoint endpoint, UniqueFd socket) : endpoint_(std::move(endpoint)), socket_(std::move(socket)) {}

  const Endpoint endpoint_;
  const UniqueFd socket_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_LISTENER_H_
