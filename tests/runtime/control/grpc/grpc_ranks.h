#ifndef RONDA_TESTS_RUNTIME_CONTROL_GRPC_GRPC_RANKS_H_
#define RONDA_TESTS_RUNTIME_CONTROL_GRPC_GRPC_RANKS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/peer.h"
#include "runtime/control/grpc/grpc_control_plane.h"

namespace ronda::testing {

// In a test's folder, as Bazel lays it out.
inline constexpr char kHostsPlugin[] = "runtime/net/libronda_hosts.so";

// A job of ranks of this process that connect over loopback.
struct GrpcRanks {
  int size = 2;
  int fan_out = kControlFanOut;
  std::string address = "127.0.0.1";
  std::string secret = "open sesame";
  // Called with each rank's options before it connects; nullptr: nothing is changed.
  std::function<void(GrpcControlPlaneOptions& options)> adapt = nullptr;
};

using GrpcPlanes = std::vector<absl::StatusOr<std::unique_ptr<ControlPlane>>>;

// The options of each rank; listeners are started.
std::vector<GrpcControlPlaneOptions> OptionsOf(const GrpcRanks& ranks);

// Connects the ranks, each on a thread of its own.
GrpcPlanes ConnectAll(std::vector<GrpcControlPlaneOptions> options);
GrpcPlanes TryConnect(const GrpcRanks& ranks);

// The same, and expects all to connect; returns nothing otherwise.
std::vector<std::unique_ptr<ControlPlane>> Connect(const GrpcRanks& ranks);

// Waits until the job fails, as this rank sees it, and returns the failure.
absl::Status AwaitFailure(ControlPlane& control);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_GRPC_GRPC_RANKS_H_
