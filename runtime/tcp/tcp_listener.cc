// SPDX-License-Identifier: Apache-2.0

#include "runtime/tcp/tcp_listener.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/net/sockets.h"

namespace ronda {

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Start(const Endpoint& endpoint) {
  RONDA_ASSIGN_OR_RETURN(UniqueFd socket, ListenAt(endpoint));
  Endpoint bound = endpoint;
  RONDA_ASSIGN_OR_RETURN(bound.port, BoundPort(socket.get()));
  return std::unique_ptr<TcpListener>(new TcpListener(std::move(bound), std::move(socket)));
}

}  // namespace ronda
