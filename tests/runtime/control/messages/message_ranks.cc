// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/messages/message_ranks.h"

#include <memory>
#include <utility>

#include "tests/testing/message_transports.h"

namespace ronda::testing {

std::vector<MessageControlPlaneOptions> OptionsOf(const MessageRanks& ranks) {
  std::vector<std::unique_ptr<PointToPoint>> ends = ConnectFakeMessages(ranks.size, ranks.seed);
  std::vector<MessageControlPlaneOptions> all;
  for (RankId rank = 0; rank < ranks.size; ++rank) {
    all.push_back({.rank = rank,
                   .peers = PeersHere(ranks.size),
                   .messages = std::move(ends[static_cast<size_t>(rank)]),
                   .job_id = "job",
                   .fan_out = ranks.fan_out});
    if (ranks.adapt != nullptr) ranks.adapt(all.back());
  }
  return all;
}

TriedPlanes ConnectAll(std::vector<MessageControlPlaneOptions> options) {
  return ConnectOnThreads(options.size(), [&](size_t i) { return ConnectMessageControlPlane(std::move(options[i])); });
}

Planes Connect(const MessageRanks& ranks) { return ExpectAll(ConnectAll(OptionsOf(ranks))); }

}  // namespace ronda::testing
