// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/messages/tcp_ranks.h"

#include <numeric>
#include <utility>

#include "runtime/net/endpoint.h"

namespace ronda::testing {

std::vector<TcpRank> RanksOf(const TcpRanks& ranks) {
  const ControlTree tree = {.size = ranks.size, .fan_out = ranks.fan_out};
  const std::vector<Peer> peers = PeersHere(ranks.size);
  std::vector<Endpoint> endpoints(static_cast<size_t>(ranks.size));
  std::vector<TcpRank> all;
  for (RankId rank = 0; rank < ranks.size; ++rank) {
    std::shared_ptr<const TcpListener> listener;
    if (!tree.Children(rank).empty()) {
      listener = TcpListener::Start(*ResolveEndpoint(ranks.address, 0)).value();
      endpoints[static_cast<size_t>(rank)] = listener->endpoint();
    }
    // The parent of a rank has a lower number, so `endpoints` already has the parent's endpoint.
    all.push_back({.control = {.rank = rank, .peers = peers, .job_id = "job", .fan_out = ranks.fan_out},
                   .mesh = {.job = {.job_id = "job", .secret = ranks.secret},
                            .rank = rank,
                            .peers = peers,
                            .endpoints = endpoints,
                            .purpose = "control messages"},
                   .listener = std::move(listener)});
    if (ranks.adapt != nullptr) ranks.adapt(all.back());
  }
  return all;
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectRank(TcpRank rank) {
  const int size = static_cast<int>(rank.control.peers.size());
  TcpLevel level = {.number = 1, .ranks = std::vector<RankId>(static_cast<size_t>(size))};
  std::iota(level.ranks.begin(), level.ranks.end(), 0);
  level.partners = ControlTree{.size = size, .fan_out = rank.control.fan_out}.Neighbours(rank.control.rank);
  TcpPartners partners = ConnectTcpPartners(rank.listener.get(), rank.mesh, level);
  rank.control.messages = std::move(partners.messages);
  rank.control.absent = std::move(partners.absent);
  rank.control.absence = std::move(partners.absence);
  return ConnectMessageControlPlane(std::move(rank.control));
}

TriedPlanes ConnectAll(std::vector<TcpRank> ranks) {
  return ConnectOnThreads(ranks.size(), [&](size_t i) { return ConnectRank(std::move(ranks[i])); });
}

Planes Connect(const TcpRanks& ranks) { return ExpectAll(ConnectAll(RanksOf(ranks))); }

}  // namespace ronda::testing
