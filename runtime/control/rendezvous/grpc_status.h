// Between absl::Status and grpc::Status, whose codes are the same numbers.
#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_GRPC_STATUS_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace ronda {

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

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_GRPC_STATUS_H_
