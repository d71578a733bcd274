#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_GRPC_CHANNEL_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_GRPC_CHANNEL_H_

#include <grpcpp/channel.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "runtime/control/rendezvous/endpoint.h"

namespace ronda {

struct ChannelOptions {
  std::optional<size_t> max_message_bytes = {};  // that are taken; nullopt: any
  std::optional<int> window_bytes = {};          // under way to us without an answer; nullopt: gRPC's choice
};

// A connection from one rank to another, which may start later than we do.
std::shared_ptr<grpc::Channel> ConnectChannel(const Endpoint& endpoint, const ChannelOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_GRPC_CHANNEL_H_
