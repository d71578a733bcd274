// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_HOST_MAP_H_
#define RONDA_RUNTIME_COLLECTIVES_HOST_MAP_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// The ranks of a job by host. The same on every rank of the job.
struct HostMap {
  std::vector<std::vector<RankId>> hosts;  // ascending ranks per host; hosts in the order of their lowest rank
};

// The position of a rank in a HostMap.
struct HostPosition {
  int host = 0;
  int local_rank = 0;
};

// Returns the position of `rank`. REQUIRES: `rank` is in `map`.
inline HostPosition PositionOf(const HostMap& map, RankId rank) {
  for (size_t host = 0; host < map.hosts.size(); ++host) {
    const std::vector<RankId>& ranks = map.hosts[host];
    const auto it = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (it == ranks.end() || *it != rank) continue;
    return {.host = static_cast<int>(host), .local_rank = static_cast<int>(it - ranks.begin())};
  }
  return {};
}

// Returns each host's rank with local rank `local_rank`, in host order. REQUIRES: every host has such a rank.
inline std::vector<RankId> RanksAt(const HostMap& map, int local_rank) {
  std::vector<RankId> ranks;
  for (const std::vector<RankId>& host : map.hosts) ranks.push_back(host[static_cast<size_t>(local_rank)]);
  return ranks;
}

// The smallest and the largest number of ranks on a host.
struct HostSizes {
  int least = 0;
  int most = 0;
};
inline HostSizes SizesOf(const HostMap& map) {
  const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [least, most] = std::minmax_element(map.hosts.begin(), map.hosts.end(), fewer);
  return {.least = static_cast<int>(least->size()), .most = static_cast<int>(most->size())};
}

// Returns whether the ranks of the job are numbered host by host.
inline bool IsInRankOrder(const HostMap& map) {
  RankId next = 0;
  for (const std::vector<RankId>& ranks : map.hosts) {
    for (RankId rank : ranks) {
      if (rank != next++) return false;
    }
  }
  return true;
}

// The two levels of a communicator that spans hosts, for other code that works in two levels. The thread that uses the
// communicator may also use the levels between calls to the communicator.
//
// HostLevels owns nothing.
struct HostLevels {
  HostMap hosts;
  Communicator* local = nullptr;   // connects this host's ranks, by local rank
  Communicator* across = nullptr;  // of the ranks with this local rank, by host; nullptr: some
                                   // host has no such rank
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HOST_MAP_H_
