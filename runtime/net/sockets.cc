// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

absl::Status NotNumeric(const Endpoint& endpoint) {
  return absl::InvalidArgumentError(absl::StrCat("\"", endpoint.address, "\" is not a numeric address"));
}

absl::Status CannotListen(const std::string& where, int error) {
  const std::string text = absl::StrCat("cannot listen on ", where, ": ", strerror(error));
  return error == EADDRINUSE ? absl::AlreadyExistsError(text) : absl::FailedPreconditionError(text);
}

absl::StatusOr<UniqueFd> Listen(const SocketAddress& address, const std::string& where) {
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (address.storage.ss_family != AF_UNIX) setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket.valid() || bind(socket.get(), address.get(), address.bytes) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0) {
    return CannotListen(where, errno);
  }
  return socket;
}

}  // namespace

absl::StatusOr<SocketAddress> ToSocketAddress(const Endpoint& endpoint) {
  SocketAddress address;
  // Copies with memcpy, because C++ does not allow access to a sockaddr_storage through another type.
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

std::string NumericText(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  if (address.storage.ss_family == AF_UNIX ||
      getnameinfo(address.get(), address.bytes, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unix";
  }
  if (address.storage.ss_family == AF_INET) return absl::StrCat(host.data(), ":", port.data());
  return absl::StrCat("[", host.data(), "]:", port.data());
}

absl::StatusOr<int> BoundPort(int fd) {
  SocketAddress address;
  if (getsockname(fd, address.get(), &address.bytes) != 0) {
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

absl::StatusOr<UniqueFd> ListenAt(const Endpoint& endpoint) {
  RONDA_ASSIGN_OR_RETURN(const SocketAddress address, ToSocketAddress(endpoint));
  return Listen(address, ToString(endpoint));
}

bool IsShortOfSockets(int error) { return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM; }

absl::Status CheckRoute(const Endpoint& endpoint) {
  RONDA_ASSIGN_OR_RETURN(const SocketAddress address, ToSocketAddress(endpoint));
  // connect() on a datagram socket sends nothing; the kernel only looks up a route.
  const UniqueFd socket(::socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.valid() && connect(socket.get(), address.get(), address.bytes) == 0) return absl::OkStatus();
  const absl::string_view advice = endpoint.loopback ? ": the loopback interface is down (ip link set lo up)" : "";
  return absl::FailedPreconditionError(
      absl::StrCat("cannot reach ", ToString(endpoint), ": ", strerror(errno), advice));
}

absl::StatusOr<UniqueFd> ListenOnPath(const std::string& path) {
  sockaddr_un unix_address = {};
  unix_address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(unix_address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("a socket's path has ", sizeof(unix_address.sun_path) - 1,
                                                   " bytes at most, and this one is longer: ", path));
  }
  path.copy(unix_address.sun_path, path.size());
  struct stat found = {};
  if (lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode)) unlink(path.c_str());
  SocketAddress address;
  memcpy(&address.storage, &unix_address, sizeof(unix_address));
  address.bytes = sizeof(unix_address);
  return Listen(address, path);
}

}  // namespace ronda
