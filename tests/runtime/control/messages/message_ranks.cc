// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/messages/message_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "tests/testing/message_transports.h"

namespace ronda::testing {

std::vector<MessageControlPlaneOptions> OptionsOf(const MessageRanks& ranks) {
  std::vector<std::unique_ptr<PointToPoint>> ends = ConnectFakeMessages(ranks.size, ranks.seed);
  std::vector<Peer> peers;
  for (RankId rank = 0; rank < ranks.size; ++rank) {
    peers.push_back({.rank = rank, .host = "localhost", .pid = getpid()});
  }
  std::vector<MessageControlPlaneOptions> all;
  for (RankId rank = 0; rank < ranks.size; ++rank) {
    all.push_back({.rank = rank,
                   .peers = peers,
                   .messages = std::move(ends[static_cast<size_t>(rank)]),
                   .job_id = "job",
                   .fan_out = ranks.fan_out});
    if (ranks.adapt != nullptr) ranks.adapt(all.back());
  }
  return all;
}

MessagePlanes ConnectAll(std::vector<MessageControlPlaneOptions> options) {
  MessagePlanes planes(options.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < options.size(); ++i) {
    threads.emplace_back([&, i] { planes[i] = ConnectMessageControlPlane(std::move(options[i])); });
  }
  for (std::thread& thread : threads) thread.join();
  return planes;
}

std::vector<std::unique_ptr<ControlPlane>> Connect(const MessageRanks& ranks) {
  std::vector<std::unique_ptr<ControlPlane>> planes;
  for (absl::StatusOr<std::unique_ptr<ControlPlane>>& plane : ConnectAll(OptionsOf(ranks))) {
    EXPECT_TRUE(plane.ok()) << plane.status();
    if (!plane.ok()) return {};
    planes.push_back(*std::move(plane));
  }
  return planes;
}

}  // namespace ronda::testing
