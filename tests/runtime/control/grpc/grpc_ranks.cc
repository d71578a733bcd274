// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/grpc/grpc_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <utility>

namespace ronda::testing {

std::vector<GrpcControlPlaneOptions> OptionsOf(const GrpcRanks& ranks) {
  const ControlTree tree = {.size = ranks.size, .fan_out = ranks.fan_out};
  std::vector<GrpcControlPlaneOptions> all(ranks.size);
  std::vector<Peer> peers;
  for (RankId rank = 0; rank < ranks.size; ++rank)
    peers.push_back({.rank = rank, .host = "localhost", .pid = getpid()});
  for (RankId rank = 0; rank < ranks.size; ++rank) {
    GrpcControlPlaneOptions& options = all[rank];
    options = {.rank = rank,
               .peers = peers,
               .plugin = kHostsPlugin,
               .job_id = "job",
               .secret = ranks.secret,
               .fan_out = ranks.fan_out};
    if (!tree.Children(rank).empty()) {
      options.listener =
          ControlListener::Start(*ResolveEndpoint(ranks.address, 0), kHostsPlugin, MessageServer::Callers::kAll)
              .value();
    }
    // Parents have lower numbers, so they already listen.
    if (rank > 0) options.parent = *ResolveEndpoint(ranks.address, all[tree.Parent(rank)].listener->port());
    if (ranks.adapt != nullptr) ranks.adapt(options);
  }
  return all;
}

GrpcPlanes ConnectAll(std::vector<GrpcControlPlaneOptions> options) {
  GrpcPlanes planes(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { planes[i] = ConnectGrpcControlPlane(std::move(options[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  return planes;
}

GrpcPlanes TryConnect(const GrpcRanks& ranks) { return ConnectAll(OptionsOf(ranks)); }

std::vector<std::unique_ptr<ControlPlane>> Connect(const GrpcRanks& ranks) {
  std::vector<std::unique_ptr<ControlPlane>> planes;
  for (absl::StatusOr<std::unique_ptr<ControlPlane>>& plane : TryConnect(ranks)) {
    EXPECT_TRUE(plane.ok()) << plane.status();
    if (!plane.ok()) return {};
    planes.push_back(*std::move(plane));
  }
  return planes;
}

absl::Status AwaitFailure(ControlPlane& control) {
  while (control.failure().ok()) control.Wait(absl::InfiniteFuture());
  return control.failure();
}

}  // namespace ronda::testing
