#include "runtime/net/loopback_users.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace ronda {
namespace {

// An address and port as /proc/net/tcp6 has them: four words in hexadecimal, of the machine's byte order. IPv4
// addresses are mapped into IPv6 (::ffff:127.0.0.1), so that they compare whatever kind of socket they are of.
struct Place {
  in6_addr address = {};
  int port = 0;

  bool operator==(const Place& other) const {
    return port == other.port && std::memcmp(&address, &other.address, sizeof(address)) == 0;
  }
};

in6_addr Mapped(in_addr address) {
  in6_addr mapped = {};
  mapped.s6_addr[10] = mapped.s6_addr[11] = 0xFF;
  std::memcpy(&mapped.s6_addr[12], &address, sizeof(address));
  return mapped;
}

std::optional<Place> PlaceOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return Place{.address = Mapped(ipv4.sin_addr), .port = ntohs(ipv4.sin_port)};
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
  return Place{.address = ipv6.sin6_addr, .port = ntohs(ipv6.sin6_port)};
}

// Reads "0100007F:5BA5".
std::optional<Place> ParsePlace(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  uint32_t port = 0;
  if (parts.size() != 2 || !absl::SimpleHexAtoi(parts[1], &port)) return std::nullopt;
  Place place = {.address = {}, .port = static_cast<int>(port)};
  const size_t words = parts[0].size() / 8;
  if (words != 1 && words != 4) return std::nullopt;
  for (size_t i = 0; i < words; ++i) {
    uint32_t word = 0;
    if (!absl::SimpleHexAtoi(parts[0].substr(8 * i, 8), &word)) return std::nullopt;
    std::memcpy(&place.address.s6_addr[4 * (words == 1 ? 3 : i)], &word, sizeof(word));
  }
  if (words == 1) place.address.s6_addr[10] = place.address.s6_addr[11] = 0xFF;
  return place;
}

struct Socket {
  Place local;
  Place remote;
  bool is_listening = false;
  uid_t user = 0;
};

// Fields: number, local, remote, state, queues, timer, retransmissions, user.
std::optional<Socket> ParseSocket(const std::string& line) {
  const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  if (fields.size() < 8) return std::nullopt;
  const std::optional<Place> local = ParsePlace(fields[1]);
  const std::optional<Place> remote = ParsePlace(fields[2]);
  Socket socket;
  if (!local || !remote || !absl::SimpleAtoi(fields[7], &socket.user)) return std::nullopt;
  socket.local = *local;
  socket.remote = *remote;
  socket.is_listening = fields[3] == "0A";
  return socket;
}

// The user of the first socket that fits.
std::optional<uid_t> FindUser(const std::function<bool(const Socket&)>& fits) {
  for (const char* const path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      const std::optional<Socket> socket = ParseSocket(line);
      if (socket.has_value() && fits(*socket)) return socket->user;
    }
  }
  return std::nullopt;
}

absl::Status Check(absl::string_view what, std::optional<uid_t> user) {
  if (!user.has_value() || *user == geteuid() || *user == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(what, " is a process of user ", *user, ", and this job is user ", geteuid(),
                   "'s: to let other users take part, give all processes of the job the same RONDA_JOB_SECRET"));
}

}  // namespace

std::optional<uid_t> UserOfCaller(int socket) {
  sockaddr_storage own = {};
  sockaddr_storage callers = {};
  socklen_t size = sizeof(own);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0) return std::nullopt;
  size = sizeof(callers);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&callers), &size) != 0) return std::nullopt;
  const std::optional<Place> here = PlaceOf(own);
  const std::optional<Place> there = PlaceOf(callers);
  if (!here || !there) return std::nullopt;
  return FindUser([&](const Socket& each) { return each.local == *there && each.remote == *here; });
}

std::optional<uid_t> UserOfListener(const Endpoint& endpoint) {
  sockaddr_storage address = {};
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  const bool is_ipv6 = endpoint.family == AddressFamily::kIPv6;
  address.ss_family = is_ipv6 ? AF_INET6 : AF_INET;
  void* const to = is_ipv6 ? static_cast<void*>(&ipv6.sin6_addr) : &ipv4.sin_addr;
  if (inet_pton(address.ss_family, endpoint.address.c_str(), to) != 1) return std::nullopt;
  (is_ipv6 ? ipv6.sin6_port : ipv4.sin_port) = htons(static_cast<uint16_t>(endpoint.port));
  const std::optional<Place> wanted = PlaceOf(address);
  const Place any_ipv4 = {.address = Mapped({INADDR_ANY}), .port = endpoint.port};
  const Place any_ipv6 = {.address = in6addr_any, .port = endpoint.port};
  return FindUser([&](const Socket& each) {
    return each.is_listening && (each.local == *wanted || each.local == any_ipv4 || each.local == any_ipv6);
  });
}

absl::Status CheckCaller(int socket) { return Check("the caller", UserOfCaller(socket)); }

absl::Status CheckListener(const Endpoint& endpoint) {
  return Check(absl::StrCat("what listens at ", ToString(endpoint)), UserOfListener(endpoint));
}

}  // namespace ronda
