#ifndef RONDA_RUNTIME_BOOTSTRAP_NETWORK_INTERFACE_H_
#define RONDA_RUNTIME_BOOTSTRAP_NETWORK_INTERFACE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/control/rendezvous/endpoint.h"

namespace ronda {

// An address that this host has on a network interface.
struct InterfaceAddress {
  std::string interface;
  AddressFamily family = AddressFamily::kIPv4;
  std::string address;  // numeric
  enum class Scope { kHost, kLink, kGlobal } scope = Scope::kGlobal;
};

// Of the interfaces that are up.
std::vector<InterfaceAddress> InterfaceAddresses();

// "there are lo (127.0.0.1), eth0 (10.0.0.1)", for messages.
std::string ListInterfaces(const std::vector<InterfaceAddress>& addresses);

// Where other hosts can reach this one; the endpoint's port is 0. With `names`, the first of these interfaces that has
// an address; else the first that has one which is valid beyond its link, not looking at bridges to containers and
// virtual machines. IPv4 comes before IPv6.
// Errors: NOT_FOUND that lists what there is.
absl::StatusOr<Endpoint> ChooseAddress(const std::vector<InterfaceAddress>& addresses,
                                       const std::vector<std::string>& names);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_NETWORK_INTERFACE_H_
