#include "runtime/tcp/tcp_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::Status NotNumeric(const Endpoint& endpoint) {
  return absl::InvalidArgumentError(absl::StrCat("\"", endpoint.address, "\" is no numeric address"));
}

}  // namespace

absl::StatusOr<SocketAddress> ToSocketAddress(const Endpoint& endpoint) {
  SocketAddress address;
  // memcpy, since sockaddr_storage must not be accessed through another type.
  if (endpoint.family == AddressFamily::kIPv4) {
    sockaddr_in ipv4 = {};
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(static_cast<uint16_t>(endpoint.port));
    if (inet_pton(AF_INET, endpoint.address.c_str(), &ipv4.sin_addr) != 1) return NotNumeric(endpoint);
    memcpy(&address.storage, &ipv4, sizeof(ipv4));
    address.bytes = sizeof(ipv4);
    return address;
  }
  sockaddr_in6 ipv6 = {};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(static_cast<uint16_t>(endpoint.port));
  if (inet_pton(AF_INET6, endpoint.address.c_str(), &ipv6.sin6_addr) != 1) return NotNumeric(endpoint);
  memcpy(&address.storage, &ipv6, sizeof(ipv6));
  address.bytes = sizeof(ipv6);
  return address;
}

absl::StatusOr<int> BoundPort(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return absl::InternalError(absl::StrCat("a socket has no address: ", strerror(errno)));
  }
  if (address.storage.ss_family == AF_INET6) {
    sockaddr_in6 ipv6;
    memcpy(&ipv6, &address.storage, sizeof(ipv6));
    return ntohs(ipv6.sin6_port);
  }
  sockaddr_in ipv4;
  memcpy(&ipv4, &address.storage, sizeof(ipv4));
  return ntohs(ipv4.sin_port);
}

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
