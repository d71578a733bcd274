// SPDX-License-Identifier: Apache-2.0

#include "bench/model/costs.h"

#include <algorithm>
#include <cstdint>

namespace ronda::bench::model {
namespace {

// The maximum number of chunks that the model tries; even more chunks do not make a collective faster.
constexpr int kMostChunks = 1 << 16;

int HostsOf(const Cluster& cluster, int ranks) { return (ranks + cluster.local_size - 1) / cluster.local_size; }

// Returns the smallest h with 2^h >= n.
int CeilLog2(int n) {
  int levels = 0;
  while ((int64_t{1} << levels) < n) ++levels;
  return levels;
}

// Returns the cost of the slowest link in use; if both kinds of link are in use, each gap is the larger of the two.
LogGP SlowestLink(const Cluster& cluster, int ranks) {
  const int hosts = HostsOf(cluster, ranks);
  if (hosts == 1) return cluster.host;
  if (hosts == ranks) return cluster.network;
  LogGP slowest = cluster.network;
  slowest.gap = std::max(slowest.gap, cluster.host.gap);
  slowest.gap_per_byte = std::max(slowest.gap_per_byte, cluster.host.gap_per_byte);
  return slowest;
}

double RingTime(const Cluster& cluster, int ranks, double bytes) {
  const int hosts = HostsOf(cluster, ranks);
  const LogGP slowest = SlowestLink(cluster, ranks);
  const double latency =
      2 * ((ranks - hosts) * MessageLatency(cluster.host) + (hosts - 1) * MessageLatency(cluster.network));
  const double steps = 2.0 * (ranks - 1);
  return std::max(latency + steps * bytes / ranks * slowest.gap_per_byte, steps * slowest.gap);
}

// Returns the minimum of time(k) over all numbers of chunks k that are powers of two. REQUIRES: time(k) first falls and
// then rises.
template <typename Time>
double BestOverChunks(const Time& time) {
  double best = time(1);
  for (int chunks = 2; chunks <= kMostChunks; chunks *= 2) {
    const double next = time(chunks);
    if (next >= best) break;
    best = next;
  }
  return best;
}

double TreeTime(const Cluster& cluster, int ranks, double bytes) {
  const int network_levels = CeilLog2(HostsOf(cluster, ranks));
  const int host_levels = CeilLog2(std::min(ranks, cluster.local_size));
  const LogGP slowest = SlowestLink(cluster, ranks);
  const double latency =
      2 * (host_levels * MessageLatency(cluster.host) + network_levels * MessageLatency(cluster.network));
  const int hops = 2 * (host_levels + network_levels);
  return BestOverChunks([&](int chunks) {
    const double transfer = 2 * bytes / chunks * slowest.gap_per_byte;
    return latency + hops * transfer + (chunks - 1) * std::max(slowest.gap, transfer);
  });
}

// Returns the seconds that a reduce-scatter or an allgather among the ranks of one host takes.
double HostPhaseTime(const Cluster& cluster, double bytes) {
  const int local = cluster.local_size;
  return (local - 1) * (MessageLatency(cluster.host) + bytes / local * cluster.host.gap_per_byte);
}

double HierarchicalTime(const Cluster& cluster, int ranks, double bytes) {
  const int hosts = HostsOf(cluster, ranks);
  if (hosts == 1) return RingTime(cluster, ranks, bytes);
  const Cluster between = {.local_size = 1, .host = {}, .network = cluster.network};
  return BestOverChunks([&](int chunks) {
    const double on_host = 2 * HostPhaseTime(cluster, bytes / chunks);
    const double on_network =
        std::min(RingTime(between, hosts, bytes / chunks), TreeTime(between, hosts, bytes / chunks));
    return on_host + on_network + (chunks - 1) * std::max(on_host, on_network);
  });
}

}  // namespace

LogGP MeasuredHost() {
  // Measured times of a collective do not reveal L and o separately, so `latency` includes both.
  return {.latency = 0.105e-6, .gap_per_byte = 0.107e-9};
}

LogGP AssumedNetwork(double gbit) {
  return {.latency = 3e-6, .overhead = 1e-6, .gap = 1e-6, .gap_per_byte = 8 / (gbit * 1e9 * kLinkEfficiency)};
}

double AllreduceTime(Algorithm algorithm, const Cluster& cluster, int ranks, double bytes) {
  if (ranks == 1) return 0;
  switch (algorithm) {
    case Algorithm::kRing:
      return RingTime(cluster, ranks, bytes);
    case Algorithm::kTree:
      return TreeTime(cluster, ranks, bytes);
    case Algorithm::kHierarchical:
      return HierarchicalTime(cluster, ranks, bytes);
  }
  return 0;
}

CoordinationCosts MeasuredCosts(Coordination coordination) {
  if (coordination == Coordination::kNegotiated) {
    return {.round = 261e-6, .submission = 416e-9, .submission_bytes = 131.5};
  }
  return {.round = 32.8e-6, .submission = 22.5e-9, .submission_bytes = 0.137};
}

double RoundBusyTime(Coordination coordination, const LogGP& network, int ranks, int tensors) {
  if (coordination == Coordination::kLocked || ranks == 1) return 0;
  const CoordinationCosts costs = MeasuredCosts(coordination);
  const double messages = 2.0 * (ranks - 1) * std::max(network.overhead, network.gap);
  const double submissions = static_cast<double>(ranks) * tensors;
  return costs.round + messages + submissions * (costs.submission + costs.submission_bytes * network.gap_per_byte);
}

double RoundLatency(Coordination coordination, const LogGP& network, int ranks) {
  if (coordination == Coordination::kLocked || ranks == 1) return 0;
  return 2 * MessageLatency(network);
}

}  // namespace ronda::bench::model
