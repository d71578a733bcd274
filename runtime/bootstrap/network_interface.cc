#include "runtime/bootstrap/network_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace ronda {
namespace {

using Scope = InterfaceAddress::Scope;

// They have addresses that look like any other, but lead to nobody outside of the host.
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
  // memcpy, because sockaddr's bytes may not be aliased as another type.
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

// A link's own addresses mean nothing without naming the link.
bool IsUsable(const InterfaceAddress& address) { return address.scope != Scope::kLink; }

bool LeadsElsewhere(const InterfaceAddress& address) {
  return address.scope == Scope::kGlobal && absl::c_none_of(kBridgePrefixes, [&](absl::string_view prefix) {
           return absl::StartsWith(address.interface, prefix);
         });
}

// The first that `fits`, an IPv4 address if there is one.
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

}  // namespace

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

}  // namespace ronda
