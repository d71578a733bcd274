// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_NET_FORK_GUARD_H_
#define RONDA_RUNTIME_NET_FORK_GUARD_H_

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/net/endpoint.h"

namespace ronda {

// While a ForkGuard exists, forked children close their copies of this process's TCP sockets at `endpoint`: the address
// at which this process listens, or to which it has connected. A child that kept such a copy would hold the connection
// open after this process exits, and the other ranks would notice the exit only by the missing heartbeats. ForkGuard
// finds the sockets by their addresses, so their owners need not register them.
//
// Thread-safe.
class ForkGuard {
 public:
  // REQUIRES: the endpoint's address is numeric.
  explicit ForkGuard(const Endpoint& endpoint);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  friend class GuardedEndpoints;

  // An address and a port. The address is an IPv6 address, or an IPv4 address in IPv6 form.
  using Key = std::pair<std::array<uint8_t, 16>, int>;

  Key key_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_FORK_GUARD_H_
