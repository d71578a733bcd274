#include "bench/model/allreduce_cost.h"

#include <vector>

#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

constexpr double kGiB = 1 << 30;
const std::vector<Algorithm> kAlgorithms = {Algorithm::kRing, Algorithm::kTree, Algorithm::kHierarchical};

// 10 GB/s and 1 us on a host, 2 GB/s and 5 us between hosts.
Cluster Hosts(int local_size) {
  return {.local_size = local_size,
          .host = {.latency = 0.8e-6, .overhead = 0.1e-6, .gap = 0.1e-6, .gap_per_byte = 0.1e-9},
          .network = {.latency = 4e-6, .overhead = 0.5e-6, .gap = 1e-6, .gap_per_byte = 0.5e-9}};
}

TEST(AllreduceCostTest, SingleRankNeedsNoTime) {
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_EQ(AllreduceTime(algorithm, Hosts(8), 1, kGiB), 0) << AlgorithmName(algorithm);
  }
}

TEST(AllreduceCostTest, RingOnOneHostIsThakursFormula) {
  // 2 (p - 1) alpha + 2 (p - 1)/p n G
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, Hosts(4), 4, 4e6), 6 * 1e-6 + 2 * 0.75 * 4e6 * 0.1e-9, 1e-12);
}

TEST(AllreduceCostTest, RingOverHostsCountsBothKindsOfHopsAndTheSlowestLink) {
  // 3 of 8 hops around the ring are inside of each of 2 hosts; a phase has 7 of them, 1 between the hosts.
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, Hosts(4), 8, 8e6), 2 * (6 * 1e-6 + 5e-6) + 14 * 1e6 * 0.5e-9, 1e-12);
}

TEST(AllreduceCostTest, RingsAreNoFasterThanAPortSendsMessages) {
  Cluster hosts = Hosts(1);
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, hosts, 100, 0), 198 * 5e-6, 1e-12);
  hosts.network.gap = 20e-6;
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, hosts, 100, 0), 198 * 20e-6, 1e-12);
}

TEST(AllreduceCostTest, TreeOfTinyMessagesTakesItsHops) {
  // 16 ranks on 4 hosts: 2 levels on the network, 2 on the host, up and down.
  EXPECT_NEAR(AllreduceTime(Algorithm::kTree, Hosts(4), 16, 0), 2 * (2 * 5e-6 + 2 * 1e-6), 1e-12);
}

TEST(AllreduceCostTest, LargeMessagesTakeTheirBytesOverTheSlowestPort) {
  const double bytes = 4096 * kGiB;
  const Cluster hosts = Hosts(8);
  const double port = bytes * hosts.network.gap_per_byte;
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, hosts, 64, bytes) / port, 2.0 * 63 / 64, 1e-3);
  EXPECT_NEAR(AllreduceTime(Algorithm::kTree, hosts, 64, bytes) / port, 2, 1e-2);
  EXPECT_NEAR(AllreduceTime(Algorithm::kHierarchical, hosts, 64, bytes) / port, 2.0 * 7 / 8, 1e-2);
}

TEST(AllreduceCostTest, HierarchicalIsLimitedByTheHostWhereThatIsSlower) {
  Cluster hosts = Hosts(8);
  hosts.network.gap_per_byte = 0.01e-9;
  const double bytes = 4096 * kGiB;
  EXPECT_NEAR(AllreduceTime(Algorithm::kHierarchical, hosts, 64, bytes) / (bytes * hosts.host.gap_per_byte),
              2.0 * 7 / 8, 1e-2);
}

TEST(AllreduceCostTest, HierarchicalOnOneHostIsARing) {
  EXPECT_EQ(AllreduceTime(Algorithm::kHierarchical, Hosts(8), 8, 1e6),
            AllreduceTime(Algorithm::kRing, Hosts(8), 8, 1e6));
}

TEST(AllreduceCostTest, MoreBytesAndMoreRanksAreNeverFaster) {
  for (const Algorithm algorithm : kAlgorithms) {
    for (int ranks = 2; ranks <= 16384; ranks *= 2) {
      for (double bytes = 4; bytes <= kGiB; bytes *= 4) {
        const double time = AllreduceTime(algorithm, Hosts(8), ranks, bytes);
        EXPECT_LE(time, AllreduceTime(algorithm, Hosts(8), ranks, 4 * bytes)) << AlgorithmName(algorithm) << ranks;
        EXPECT_LE(time, AllreduceTime(algorithm, Hosts(8), 2 * ranks, bytes)) << AlgorithmName(algorithm) << ranks;
      }
    }
  }
}

TEST(AllreduceCostTest, FasterLinksAreNeverSlower) {
  Cluster faster = Hosts(8);
  faster.network.gap_per_byte /= 4;
  for (const Algorithm algorithm : kAlgorithms) {
    for (double bytes = 4; bytes <= kGiB; bytes *= 4) {
      EXPECT_LE(AllreduceTime(algorithm, faster, 1024, bytes), AllreduceTime(algorithm, Hosts(8), 1024, bytes));
    }
  }
}

TEST(AllreduceCostTest, RingsLoseToTreesAndHierarchiesWhereLatencyCounts) {
  const double ring = AllreduceTime(Algorithm::kRing, Hosts(8), 4096, 1 << 20);
  EXPECT_GT(ring, 5 * AllreduceTime(Algorithm::kTree, Hosts(8), 4096, 1 << 20));
  EXPECT_GT(ring, 5 * AllreduceTime(Algorithm::kHierarchical, Hosts(8), 4096, 1 << 20));
}

}  // namespace
}  // namespace ronda::bench::model
