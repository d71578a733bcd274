// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_TCP_TCP_LISTENER_H_
#define RONDA_RUNTIME_TCP_TCP_LISTENER_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// The socket to which other ranks connect to exchange data with this rank. It is opened before the rendezvous, so that
// the member list can contain its address. Early callers wait in the kernel's queue until ConnectTcp() accepts them.
// Thread-compatible.
class TcpListener {
 public:
  // Listens only on `endpoint`, whose port may be 0. Errors: those of ListenAt().
  static absl::StatusOr<std::unique_ptr<TcpListener>> Start(const Endpoint& endpoint);

  const Endpoint& endpoint() const { return endpoint_; }  // with its port
  int fd() const { return socket_.get(); }                // non-blocking

 private:
  TcpListener(Endpoint endpoint, UniqueFd socket) : endpoint_(std::move(endpoint)), socket_(std::move(socket)) {}

  const Endpoint endpoint_;
  const UniqueFd socket_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_LISTENER_H_
