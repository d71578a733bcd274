// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/endpoint.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Lookup(std::string host, const std::string& service, int flags) {
  // Resolves "localhost" (RFC 6761) itself, because small containers often have no /etc/hosts with this name.
  if (host == "localhost") host = "127.0.0.1";
  const addrinfo hints = {.ai_flags = flags, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), service.c_str(), &hints, &found); error != 0) {
    return absl::NotFoundError(
        absl::StrCat("there is no host \"", host, "\": ", gai_strerror(error), "; check MASTER_ADDR"));
  }
  return AddressList(found, &freeaddrinfo);
}

// Returns the IPv4 addresses or, if there are none, the IPv6 addresses. So all ranks choose the same family, in
// whatever order the system's resolver lists the addresses.
std::vector<const addrinfo*> Choose(const addrinfo* list) {
  std::vector<const addrinfo*> chosen;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
      if (item->ai_family == family) chosen.push_back(item);
    }
    if (!chosen.empty()) break;
  }
  return chosen;
}

struct NumericAddress {
  std::string text;
  bool loopback = false;
  bool unspecified = false;
};

NumericAddress ReadIPv4(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  const uint32_t value = ntohl(address.sin_addr.s_addr);
  return {.text = text, .loopback = value >> 24 == 127, .unspecified = value == INADDR_ANY};
}

NumericAddress ReadIPv6(const sockaddr_in6& address) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
  return {.text = text,
          .loopback = IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0,
          .unspecified = IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr) != 0};
}

NumericAddress Read(const addrinfo& info) {
  // Copies with memcpy, because C++ does not allow access to a sockaddr through another type.
  if (info.ai_family == AF_INET) {
    sockaddr_in address;
    memcpy(&address, info.ai_addr, sizeof(address));
    return ReadIPv4(address);
  }
  sockaddr_in6 address;
  memcpy(&address, info.ai_addr, sizeof(address));
  return ReadIPv6(address);
}

using Scope = InterfaceAddress::Scope;

// Prefixes of interfaces to ignore: other hosts cannot reach their addresses, although these look like any other
// address.
constexpr absl::string_view kBridgePrefixes[] = {"docker", "virbr", "lxcbr", "cni"};

Scope ScopeOf(const in_addr& address) {
  const uint32_t value = ntohl(address.s_addr);
  if (value >> 24 == 127) return Scope::kHost;
  return value >> 16 == 0xa9fe ? Scope::kLink : Scope::kGlobal;
}

Scope ScopeOf(const in6_addr& address) {
  if (IN6_IS_ADDR_LOOPBACK(&address)) return Scope::kHost;
  return IN6_IS_ADDR_LINKLOCAL(&address) ? Scope::kLink : Scope::kGlobal;
}

std::optional<InterfaceAddress> Read(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return std::nullopt;
  char text[INET6_ADDRSTRLEN] = {};
  InterfaceAddress found{.interface = entry.ifa_name};
  // Copies with memcpy, because C++ does not allow access to a sockaddr through another type.
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, entry.ifa_addr, sizeof(address));
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    found.scope = ScopeOf(address.sin_addr);
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    sockaddr_in6 address;
    std::memcpy(&address, entry.ifa_addr, sizeof(address));
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    found.family = AddressFamily::kIPv6;
    found.scope = ScopeOf(address.sin6_addr);
  } else {
    return std::nullopt;
  }
  found.address = text;
  return found;
}

// Returns whether other hosts can use the address. A link-local address is useless without its interface.
bool IsUsable(const InterfaceAddress& address) { return address.scope != Scope::kLink; }

bool LeadsElsewhere(const InterfaceAddress& address) {
  return address.scope == Scope::kGlobal && absl::c_none_of(kBridgePrefixes, [&](absl::string_view prefix) {
           return absl::StartsWith(address.interface, prefix);
         });
}

// Returns the first IPv4 address that `fits`; if there is none, the first IPv6 address that `fits`.
template <typename Predicate>
std::optional<Endpoint> FirstThat(const std::vector<InterfaceAddress>& addresses, const Predicate& fits) {
  for (const AddressFamily family : {AddressFamily::kIPv4, AddressFamily::kIPv6}) {
    for (const InterfaceAddress& address : addresses) {
      if (address.family != family || !fits(address)) continue;
      return Endpoint{.host = address.address,
                      .family = family,
                      .address = address.address,
                      .port = 0,
                      .loopback = address.scope == Scope::kHost};
    }
  }
  return std::nullopt;
}

enum class Loopback { kIncluded, kLeftOut };

absl::StatusOr<Endpoint> Resolve(absl::string_view host, int port, Loopback loopback) {
  const absl::StatusOr<AddressList> list = Lookup(std::string(host), absl::StrCat(port), 0);
  if (!list.ok()) return list.status();
  std::optional<Endpoint> endpoint;
  for (const addrinfo* const item : Choose(list->get())) {
    NumericAddress address = Read(*item);
    if (address.unspecified) {
      return absl::InvalidArgumentError(absl::StrCat("MASTER_ADDR \"", host,
                                                     "\" stands for all interfaces, and Ronda listens on one only: "
                                                     "give the address of rank 0 that the other ranks reach"));
    }
    if (address.loopback && loopback == Loopback::kLeftOut) continue;
    if (!endpoint.has_value()) {
      endpoint = {.host = std::string(host),
                  .family = item->ai_family == AF_INET ? AddressFamily::kIPv4 : AddressFamily::kIPv6,
                  .address = std::move(address.text),
                  .port = port,
                  .loopback = address.loopback};
    } else if (!endpoint->loopback && !address.loopback) {
      // A job on loopback may have no secret. Ranks then check the listener's user, but only at one address.
      endpoint->other_addresses.push_back(std::move(address.text));
    }
  }
  if (endpoint.has_value()) return *std::move(endpoint);
  return absl::NotFoundError(absl::StrCat("host \"", host, "\" has no IP address; check MASTER_ADDR"));
}

// Returns whether the system resolves the name of this host to a loopback address.
bool IsOwnNameOnLoopback(const Endpoint& endpoint) {
  in_addr numeric;
  const bool is_name = endpoint.host != endpoint.address && inet_aton(endpoint.host.c_str(), &numeric) == 0;
  return endpoint.loopback && is_name && !absl::StrContains(endpoint.host, "localhost") &&
         !absl::StrContains(endpoint.host, "loopback");
}

}  // namespace

std::string NumericText(const Endpoint& endpoint) {
  if (endpoint.family == AddressFamily::kIPv6) return absl::StrCat("[", endpoint.address, "]:", endpoint.port);
  return absl::StrCat(endpoint.address, ":", endpoint.port);
}

std::string ToString(const Endpoint& endpoint) {
  if (endpoint.host == endpoint.address) return NumericText(endpoint);
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

absl::StatusOr<Endpoint> ResolveEndpoint(absl::string_view host, int port) {
  return Resolve(host, port, Loopback::kIncluded);
}

std::vector<Endpoint> ByAddress(const Endpoint& endpoint) {
  std::vector<Endpoint> all(1 + endpoint.other_addresses.size(), endpoint);
  for (size_t i = 1; i < all.size(); ++i) all[i].address = endpoint.other_addresses[i - 1];
  for (Endpoint& each : all) each.other_addresses.clear();
  return all;
}

absl::Status CheckSecret(const Endpoint& endpoint, absl::string_view secret) {
  if (endpoint.loopback || !secret.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(ToString(endpoint),
                   " can be reached from other hosts, so the ranks must prove that they belong to the "
                   "job: set RONDA_JOB_SECRET to the same value on every rank"));
}

std::vector<InterfaceAddress> InterfaceAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (std::optional<InterfaceAddress> found = Read(*entry)) addresses.push_back(*std::move(found));
  }
  return addresses;
}

std::string ListInterfaces(const std::vector<InterfaceAddress>& addresses) {
  if (addresses.empty()) return "this host has none";
  return absl::StrCat("there are ",
                      absl::StrJoin(addresses, ", ", [](std::string* text, const InterfaceAddress& address) {
                        absl::StrAppend(text, address.interface, " (", address.address, ")");
                      }));
}

absl::StatusOr<Endpoint> ChooseAddress(const std::vector<InterfaceAddress>& addresses,
                                       const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto is_named = [&](const InterfaceAddress& address) {
      return address.interface == name && IsUsable(address);
    };
    if (std::optional<Endpoint> endpoint = FirstThat(addresses, is_named)) return *std::move(endpoint);
  }
  if (!names.empty()) {
    return absl::NotFoundError(absl::StrCat("RONDA_NETWORK_INTERFACE=\"", absl::StrJoin(names, ","),
                                            "\": should name a network interface that is up and has an address; ",
                                            ListInterfaces(addresses)));
  }
  if (std::optional<Endpoint> endpoint = FirstThat(addresses, LeadsElsewhere)) return *std::move(endpoint);
  return absl::NotFoundError(
      absl::StrCat("no network interface here leads to other hosts: name one in RONDA_NETWORK_INTERFACE if one does; ",
                   ListInterfaces(addresses)));
}

absl::StatusOr<Endpoint> BeyondLoopback(Endpoint endpoint, const std::vector<std::string>& names) {
  if (!IsOwnNameOnLoopback(endpoint)) return endpoint;
  if (names.empty()) {
    absl::StatusOr<Endpoint> other = Resolve(endpoint.host, endpoint.port, Loopback::kLeftOut);
    if (other.ok()) return other;
  }
  absl::StatusOr<Endpoint> chosen = ChooseAddress(InterfaceAddresses(), names);
  if (!chosen.ok() && names.empty()) return endpoint;  // no other host reaches this host, so none is in the job
  RONDA_RETURN_IF_ERROR(chosen.status());
  chosen->host = std::move(endpoint.host);
  chosen->port = endpoint.port;
  return chosen;
}

}  // namespace ronda
