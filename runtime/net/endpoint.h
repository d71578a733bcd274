// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NET_ENDPOINT_H_
#define RONDA_RUNTIME_NET_ENDPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

enum class AddressFamily { kIPv4, kIPv6 };

// A TCP port on one address.
struct Endpoint {
  std::string host;                             // as the user wrote it, for messages
  AddressFamily family = AddressFamily::kIPv4;  // of `address`
  std::string address;                          // numeric: "127.0.0.1", "::1"
  int port = 0;                                 // 0: the system chooses the port of a server
  bool loopback = false;                        // only processes of this host can reach it
  // The other numeric addresses of `host` in the same family; none if `address` is on loopback. A server listens only
  // at `address`. A client also tries the others, because the server may have resolved `host` to one of them.
  std::vector<std::string> other_addresses = {};
};

// Returns the address and the port, for example "127.0.0.1:29500" or "[::1]:29500".
std::string NumericText(const Endpoint& endpoint);

// Returns the host as the user wrote it, and the port, such as "localhost:29500" or "[::1]:29500".
std::string ToString(const Endpoint& endpoint);

// Resolves `host`, which is a name, an IPv4 address or an IPv6 address.
// Errors: INVALID_ARGUMENT if the address is a wildcard address (all interfaces); NOT_FOUND if there is no such host.
absl::StatusOr<Endpoint> ResolveEndpoint(absl::string_view host, int port);

// Returns one endpoint per address of `endpoint`, in order. Their `other_addresses` are empty.
std::vector<Endpoint> ByAddress(const Endpoint& endpoint);

// Checks that a job that uses more than loopback has a secret.
// Errors: FAILED_PRECONDITION if `secret` is empty and the endpoint is not on loopback.
absl::Status CheckSecret(const Endpoint& endpoint, absl::string_view secret);

// An address that this host has on a network interface.
struct InterfaceAddress {
  std::string interface;
  AddressFamily family = AddressFamily::kIPv4;
  std::string address;  // numeric
  enum class Scope { kHost, kLink, kGlobal } scope = Scope::kGlobal;
};

// Returns the addresses of the network interfaces that are up.
std::vector<InterfaceAddress> InterfaceAddresses();

// Returns a list of interfaces for error messages, such as "there are lo (127.0.0.1), eth0 (10.0.0.1)".
std::string ListInterfaces(const std::vector<InterfaceAddress>& addresses);

// Returns an address, with port 0, at which other hosts can reach this host. If `names` is not empty, takes an address
// of the first named interface that has one. Otherwise takes the first address of global scope, ignoring bridges to
// containers and virtual machines. Prefers IPv4 to IPv6. Errors: NOT_FOUND that lists all interfaces.
absl::StatusOr<Endpoint> ChooseAddress(const std::vector<InterfaceAddress>& addresses,
                                       const std::vector<std::string>& names);

// Returns where a server that `endpoint` names must listen so that other hosts can reach it. Some systems resolve a
// host's own name to loopback (Debian: 127.0.1.1), while other hosts resolve the name to a reachable address. If
// `endpoint` is such a name, returns a non-loopback address instead: one that the name also resolves to, if there is
// one and `names` is empty, otherwise the result of ChooseAddress(). Returns any other `endpoint` unchanged, and also
// this one if `names` is empty and no interface leads to other hosts. Errors: NOT_FOUND from ChooseAddress() if `names`
// is not empty.
absl::StatusOr<Endpoint> BeyondLoopback(Endpoint endpoint, const std::vector<std::string>& names);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_ENDPOINT_H_
