// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_CONTROL_GRPC_GRPC_STREAMS_H_
#define RONDA_RUNTIME_CONTROL_GRPC_GRPC_STREAMS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/mutex.h"
#include "runtime/control/tree/frame_stream.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/fork_guard.h"
#include "runtime/net/message_streams.h"

namespace ronda {

// The parent's end of streams. It accepts all callers: children and unauthenticated ones.
//
// Thread-safe. The destructor cuts off the remaining streams, and waits until their owner has been notified.
class ControlServer {
 public:
  // Listens on one address. `plugin`, `callers`: as MessageServer's. Errors: those of MessageServer::Start.
  static absl::StatusOr<std::unique_ptr<ControlServer>> Start(const Endpoint& endpoint, const std::string& plugin,
                                                              MessageServer::Callers callers);
  ~ControlServer();

  int port() const { return server_->port(); }

  // From now on `owner` gets the streams, first those that have already come in. Call once.
  void Serve(const std::shared_ptr<ControlCore>& owner);

 private:
  ControlServer() = default;

  void Accept(absl::string_view method, MessageStream stream);
  // nullptr if no owner is set yet: then `stream` waits for it, or is ended.
  std::shared_ptr<ControlCore> OwnerOrWait(ControlStream* stream);

  Mutex mu_;
  std::shared_ptr<ControlCore> owner_ ABSL_GUARDED_BY(mu_);
  std::vector<ControlStream*> waiting_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<MessageServer> server_;  // constant once started
  std::unique_ptr<ForkGuard> guard_;       // constant once started
};

// The child's end of its stream to its parent.
//
// Thread-safe. May be destroyed before the stream has closed.
class ControlClient {
 public:
  // `plugin`: as MessageServer's. Errors: those of MessageChannel::Connect.
  static absl::StatusOr<std::unique_ptr<ControlClient>> Connect(const Endpoint& parent, const std::string& plugin);

  // Returns the stream. It connects when it is opened, and keeps trying until it is cut off. Call once; the caller
  // opens or ends it.
  ControlStream* MakeStream();

  // Cuts the stream off.
  void Cancel() { channel_->Cancel(); }

 private:
  ControlClient(const Endpoint& parent, std::unique_ptr<MessageChannel> channel)
      : guard_(parent), channel_(std::move(channel)) {}

  const ForkGuard guard_;
  const std::unique_ptr<MessageChannel> channel_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_GRPC_GRPC_STREAMS_H_
