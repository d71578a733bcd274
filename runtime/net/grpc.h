#ifndef RONDA_RUNTIME_NET_GRPC_H_
#define RONDA_RUNTIME_NET_GRPC_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "runtime/net/endpoint.h"

namespace ronda {

struct ChannelOptions {
  std::optional<size_t> max_message_bytes = {};  // that are taken; nullopt: any
  std::optional<int> window_bytes = {};          // under way to us without an answer; nullopt: gRPC's choice
};

// A connection from one rank to another, which may start later than we do.
std::shared_ptr<grpc::Channel> ConnectChannel(const Endpoint& endpoint, const ChannelOptions& options);

// Between absl::Status and grpc::Status, whose codes are the same numbers.

inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  // The text travels in a header, percent-encoded, and gRPC drops headers beyond 8 KiB in all.
  constexpr size_t kMaxTextBytes = 2000;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(status.message().substr(0, kMaxTextBytes)));
}

inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_GRPC_H_
