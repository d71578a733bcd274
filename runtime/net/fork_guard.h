#ifndef RONDA_RUNTIME_NET_FORK_GUARD_H_
#define RONDA_RUNTIME_NET_FORK_GUARD_H_

#include <array>
#include <cstdint>
#include <utility>

#include "runtime/net/endpoint.h"

namespace ronda {

// While it exists, children of fork() begin without copies of this process' TCP sockets at `endpoint`: where this
// process listens, or to which it has connected. With a copy in a child that lives on, the end of this process would
// not end its connections, and the other ranks would learn of it by its silence only. gRPC keeps its descriptors to
// itself; so a socket is known by its addresses.
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

  // An address of IPv6, or one of IPv4 in IPv6's form; and a port.
  using Key = std::pair<std::array<uint8_t, 16>, int>;

  Key key_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_FORK_GUARD_H_
