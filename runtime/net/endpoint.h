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
};

// Returns the address and the port, for example "127.0.0.1:29500" or "[::1]:29500".
std::string NumericText(const Endpoint& endpoint);

// Returns the port, and the host as the user wrote it, such as "localhost:29500" or "[::1]:29500".
std::string ToString(const Endpoint& endpoint);

// Finds the address of `host`, which is a name, an IPv4 address or an IPv6 address.
// Errors: INVALID_ARGUMENT if the address is the wildcard address of all interfaces; NOT_FOUND if no such host exists.
absl::StatusOr<Endpoint> ResolveEndpoint(absl::string_view host, int port);

// Checks that the job has a secret if the endpoint is not on loopback.
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

// Returns an address at which other hosts can reach this host. The port of the result is 0. If `names` is not empty,
// the address is on the first of the named interfaces that has an address. If `names` is empty, the address is on the
// first interface with an address that is valid beyond the interface's link. Bridges to containers and virtual machines
// are ignored. IPv4 is preferred to IPv6. Errors: NOT_FOUND that lists all interfaces.
absl::StatusOr<Endpoint> ChooseAddress(const std::vector<InterfaceAddress>& addresses,
                                       const std::vector<std::string>& names);

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_ENDPOINT_H_
