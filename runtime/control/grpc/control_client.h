#ifndef RONDA_RUNTIME_CONTROL_GRPC_CONTROL_CLIENT_H_
#define RONDA_RUNTIME_CONTROL_GRPC_CONTROL_CLIENT_H_

#include <memory>

#include "runtime/control/rendezvous/endpoint.h"
#include "runtime/control/tree/control_stream.h"

namespace ronda {

// The child's end of its stream to its parent.
//
// Thread-safe. May be destroyed before the stream has closed.
class ControlClient {
 public:
  explicit ControlClient(const Endpoint& parent);
  ~ControlClient();

  // The stream, which connects once it is opened, and tries to until it is cut off. To be called once; the caller opens
  // or ends it.
  ControlStream* MakeStream();

  // Cuts the stream off.
  void Cancel();

 private:
  class Impl;  // keeps gRPC's headers out of this one

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_GRPC_CONTROL_CLIENT_H_
