#ifndef RONDA_RUNTIME_COLLECTIVES_HOST_MAP_H_
#define RONDA_RUNTIME_COLLECTIVES_HOST_MAP_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"

namespace ronda {

// Which ranks of a job share a host, the same on every rank.
struct HostMap {
  std::vector<std::vector<RankId>> hosts;  // their ranks, ascending; hosts by their lowest rank
};

// Where a rank is: on which host, and which of its ranks.
struct HostPosition {
  int host = 0;
  int local_rank = 0;
};

// REQUIRES: `rank` is on a host.
inline HostPosition PositionOf(const HostMap& map, RankId rank) {
  for (size_t host = 0; host < map.hosts.size(); ++host) {
    const std::vector<RankId>& ranks = map.hosts[host];
    const auto it = std::lower_bound(ranks.begin(), ranks.end(), rank);
    if (it == ranks.end() || *it != rank) continue;
    return {.host = static_cast<int>(host), .local_rank = static_cast<int>(it - ranks.begin())};
  }
  return {};
}

// The ranks that have this place on their hosts, by host.
// REQUIRES: all hosts have it.
inline std::vector<RankId> RanksAt(const HostMap& map, int local_rank) {
  std::vector<RankId> ranks;
  for (const std::vector<RankId>& host : map.hosts) ranks.push_back(host[static_cast<size_t>(local_rank)]);
  return ranks;
}

// Ranks on the host that has fewest, and on the one that has most.
struct HostSizes {
  int least = 0;
  int most = 0;
};
inline HostSizes SizesOf(const HostMap& map) {
  const auto fewer = [](const auto& a, const auto& b) { return a.size() < b.size(); };
  const auto [least, most] = std::minmax_element(map.hosts.begin(), map.hosts.end(), fewer);
  return {.least = static_cast<int>(least->size()), .most = static_cast<int>(most->size())};
}

// Whether the hosts, one after the other, have the ranks of the job in order.
inline bool IsInRankOrder(const HostMap& map) {
  RankId next = 0;
  for (const std::vector<RankId>& ranks : map.hosts) {
    for (RankId rank : ranks) {
      if (rank != next++) return false;
    }
  }
  return true;
}

// The two levels in which the communicator of a job works that spans hosts, for what else works in two levels. They are
// used as that communicator is: by the same thread, and between its calls.
//
// Owns nothing.
struct HostLevels {
  HostMap hosts;
  Communicator* local = nullptr;   // of this host's ranks, numbered by their place in its list
  Communicator* across = nullptr;  // of the ranks with this place on their hosts, numbered by host; nullptr: not every
                                   // host has this place
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_HOST_MAP_H_
