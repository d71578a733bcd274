#include "runtime/control/rendezvous/membership.h"

#include "absl/container/flat_hash_map.h"

namespace ronda {

std::vector<std::vector<RankId>> HostsOf(const Membership& membership) {
  absl::flat_hash_map<std::string, size_t> numbers;
  std::vector<std::vector<RankId>> hosts;
  for (const Member& member : membership.members) {
    const auto [it, is_new] = numbers.try_emplace(member.host_id, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[it->second].push_back(member.peer.rank);
  }
  return hosts;
}

Topology TopologyOf(const Membership& membership, RankId rank) {
  const Member& self = membership.members[rank];
  Topology topology{.rank = rank, .size = static_cast<int>(membership.members.size()), .hostname = self.peer.host};

  absl::flat_hash_map<std::string, int> ranks_on_host;
  std::vector<int> local_ranks;
  for (const Member& member : membership.members) local_ranks.push_back(ranks_on_host[member.host_id]++);
  topology.local_rank = local_ranks[rank];
  topology.local_size = ranks_on_host[self.host_id];

  topology.cross_size = 0;
  // One rank a host has this local rank, but hosts are numbered by their lowest rank, so the order is that of the ranks
  // with local rank 0 on hosts that have one with `topology.local_rank`.
  for (size_t i = 0; i < local_ranks.size(); ++i) {
    const std::string& host_id = membership.members[i].host_id;
    if (local_ranks[i] != 0 || ranks_on_host[host_id] <= topology.local_rank) continue;
    if (host_id == self.host_id) topology.cross_rank = topology.cross_size;
    ++topology.cross_size;
  }
  return topology;
}

}  // namespace ronda
