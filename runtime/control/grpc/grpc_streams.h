#ifndef RONDA_RUNTIME_CONTROL_GRPC_GRPC_STREAMS_H_
#define RONDA_RUNTIME_CONTROL_GRPC_GRPC_STREAMS_H_

#include <memory>

#include "absl/status/status.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/net/endpoint.h"

namespace ronda {

// The parent's end of streams: accepts all callers, children and unauthenticated ones.
//
// Thread-safe. Destroying it cuts off the streams that are left, and waits until their owner has heard of it.
class ControlServer {
 public:
  ControlServer();
  ~ControlServer();

  // Listens on one address. To be called once.
  // Errors: as RendezvousServer::Start, but for those of the secret.
  absl::Status Listen(const Endpoint& endpoint);
  int port() const;

  // From now on `owner` gets the streams, those first that have come in already. To be called once.
  void Serve(std::shared_ptr<ControlCore> owner);

 private:
  class Impl;  // keeps gRPC's headers out of this one

  const std::unique_ptr<Impl> impl_;
};

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

#endif  // RONDA_RUNTIME_CONTROL_GRPC_GRPC_STREAMS_H_
