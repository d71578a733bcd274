#include "runtime/tcp/tcp_listener.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/tcp/socket_address.h"

namespace ronda {

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Start(const Endpoint& endpoint) {
  RONDA_ASSIGN_OR_RETURN(const SocketAddress address, ToSocketAddress(endpoint));
  const auto failed = [&] {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen for data on ", NumericText(endpoint), ": ", strerror(errno)));
  };
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() || bind(socket.get(), address.get(), address.bytes) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    return failed();
  }
  Endpoint bound = endpoint;
  RONDA_ASSIGN_OR_RETURN(bound.port, BoundPort(socket.get()));
  return std::unique_ptr<TcpListener>(new TcpListener(std::move(bound), std::move(socket)));
}

}  // namespace ronda
