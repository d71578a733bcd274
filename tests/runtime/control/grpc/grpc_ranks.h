// SPDX-License-Identifier: Apache-2.0

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

// The plugin's path in a test's folder, as Bazel lays it out.
inline constexpr char kHostsPlugin[] = "runtime/net/libronda_hosts.so";

// A job whose ranks are in this process and connect over loopback.
struct GrpcRanks {
  int size = 2;
  int fan_out = kControlFanOut;
  std::string address = "127.0.0.1";
  std::string secret = "open sesame";
  // Called with each rank's options before the rank connects. nullptr changes nothing.
  std::function<void(GrpcControlPlaneOptions& options)> adapt = nullptr;
};

using GrpcPlanes = std::vector<absl::StatusOr<std::unique_ptr<ControlPlane>>>;

// Returns the options of each rank. The listeners in them are started.
std::vector<GrpcControlPlaneOptions> OptionsOf(const GrpcRanks& ranks);

// Connects the ranks, each on its own thread.
GrpcPlanes ConnectAll(std::vector<GrpcControlPlaneOptions> options);
GrpcPlanes TryConnect(const GrpcRanks& ranks);

// Connects the ranks and expects all to connect. Returns nothing if one does not.
std::vector<std::unique_ptr<ControlPlane>> Connect(const GrpcRanks& ranks);

// Waits until this rank knows a failure of the job, and returns it.
absl::Status AwaitFailure(ControlPlane& control);

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_CONTROL_GRPC_GRPC_RANKS_H_
