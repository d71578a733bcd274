// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/loopback_users.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/net/sockets.h"

namespace ronda {
namespace {

// An address and a port. IPv4 addresses are stored as IPv4-mapped IPv6 addresses (::ffff:127.0.0.1), because an IPv6
// socket can be connected to an IPv4 socket.
struct Place {
  in6_addr address = {};
  int port = 0;

  bool operator==(const Place& other) const {
    return port == other.port && std::memcmp(&address, &other.address, sizeof(address)) == 0;
  }
};

// Maps the IPv4 address in `bytes`, which is in network byte order, to IPv6.
in6_addr Mapped(const void* bytes) {
  in6_addr mapped = {};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xFF;
  std::memcpy(&mapped.s6_addr[12], bytes, sizeof(in_addr));
  return mapped;
}

std::optional<Place> PlaceOf(const SocketAddress& address) {
  // Copies with memcpy, because C++ does not allow access to a sockaddr_storage through another type.
  if (address.storage.ss_family == AF_INET) {
    sockaddr_in ipv4;
    std::memcpy(&ipv4, &address.storage, sizeof(ipv4));
    return Place{.address = Mapped(&ipv4.sin_addr), .port = ntohs(ipv4.sin_port)};
  }
  if (address.storage.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 ipv6;
  std::memcpy(&ipv6, &address.storage, sizeof(ipv6));
  return Place{.address = ipv6.sin6_addr, .port = ntohs(ipv6.sin6_port)};
}

// Parses an address and a port, for example "0100007F:5BA5". The kernel writes an address as one or four 32-bit
// hexadecimal numbers in host byte order.
std::optional<Place> ParsePlace(absl::string_view text) {
  constexpr size_t kDigits = 8;  // of a word
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  uint32_t port = 0;
  if (parts.size() != 2 || !absl::SimpleHexAtoi(parts[1], &port)) return std::nullopt;
  const bool is_ipv4 = parts[0].size() == kDigits;
  if (!is_ipv4 && parts[0].size() != 4 * kDigits) return std::nullopt;
  uint32_t words[4] = {};
  for (size_t i = 0; i < parts[0].size() / kDigits; ++i) {
    if (!absl::SimpleHexAtoi(parts[0].substr(kDigits * i, kDigits), &words[i])) return std::nullopt;
  }
  Place place = {.port = static_cast<int>(port)};
  if (is_ipv4) {
    place.address = Mapped(words);
  } else {
    std::memcpy(&place.address, words, sizeof(words));
  }
  return place;
}

struct Socket {
  Place local;
  Place remote;
  bool is_listening = false;
  bool is_open = false;  // in at least one process; otherwise the kernel no longer knows its user
  uid_t user = 0;
};

// Parses a line of the kernel's list. The fields of the line are number, local address, remote address, state, queues,
// timer, retransmissions, user, timeout and inode.
std::optional<Socket> ParseSocket(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (fields.size() < 10) return std::nullopt;
  const std::optional<Place> local = ParsePlace(fields[1]);
  const std::optional<Place> remote = ParsePlace(fields[2]);
  uid_t user = 0;
  if (!local || !remote || !absl::SimpleAtoi(fields[7], &user)) return std::nullopt;
  return Socket{
      .local = *local, .remote = *remote, .is_listening = fields[3] == "0A", .is_open = fields[9] != "0", .user = user};
}

// Returns the first socket in the kernel's lists that `fits`.
std::optional<Socket> FindSocket(const std::function<bool(const Socket&)>& fits) {
  for (const char* const path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::optional<Socket> socket = ParseSocket(line);
      if (socket.has_value() && fits(*socket)) return socket;
    }
  }
  return std::nullopt;
}

std::optional<Socket> FindCaller(int socket) {
  SocketAddress own;
  SocketAddress callers;
  if (getsockname(socket, own.get(), &own.bytes) != 0) return std::nullopt;
  if (getpeername(socket, callers.get(), &callers.bytes) != 0) return std::nullopt;
  const std::optional<Place> here = PlaceOf(own);
  const std::optional<Place> there = PlaceOf(callers);
  if (!here || !there) return std::nullopt;
  return FindSocket([&](const Socket& each) { return each.local == *there && each.remote == *here; });
}

std::optional<Socket> FindListener(const Endpoint& endpoint) {
  const absl::StatusOr<SocketAddress> address = ToSocketAddress(endpoint);
  if (!address.ok()) return std::nullopt;
  const std::optional<Place> wanted = PlaceOf(*address);
  constexpr in_addr kAnyIpv4 = {INADDR_ANY};
  const Place any_ipv4 = {.address = Mapped(&kAnyIpv4), .port = endpoint.port};
  const Place any_ipv6 = {.address = in6addr_any, .port = endpoint.port};
  return FindSocket([&](const Socket& each) {
    return each.is_listening && (each.local == *wanted || each.local == any_ipv4 || each.local == any_ipv6);
  });
}

std::optional<uid_t> UserOf(const std::optional<Socket>& socket) {
  return socket.has_value() && socket->is_open ? std::optional(socket->user) : std::nullopt;
}

absl::Status Check(absl::string_view what, const std::optional<Socket>& socket) {
  if (!socket.has_value()) return absl::OkStatus();
  if (!socket->is_open) {
    return absl::PermissionDeniedError(absl::StrCat(what, " has closed its connection before its user was known"));
  }
  if (socket->user == geteuid() || socket->user == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(what, " is a process of user ", socket->user, ", and this job is user ", geteuid(),
                   "'s: to let other users take part, give all processes of the job the same RONDA_JOB_SECRET"));
}

}  // namespace

std::optional<uid_t> UserOfCaller(int socket) { return UserOf(FindCaller(socket)); }

std::optional<uid_t> UserOfListener(const Endpoint& endpoint) { return UserOf(FindListener(endpoint)); }

absl::Status CheckCaller(int socket) { return Check("the caller", FindCaller(socket)); }

absl::Status CheckListener(const Endpoint& endpoint) {
  return Check(absl::StrCat("what listens at ", ToString(endpoint)), FindListener(endpoint));
}

}  // namespace ronda
