// SPDX-License-Identifier: Apache-2.0

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bench/model/costs.h"
#include "gtest/gtest.h"

namespace ronda::bench::model {
namespace {

constexpr double kGiB = 1 << 30;
const std::vector<Algorithm> kAlgorithms = {Algorithm::kRing, Algorithm::kTree, Algorithm::kHierarchical};

// Returns a cluster with 10 GB/s and 1 us within a host, and 2 GB/s and 5 us between hosts.
Cluster Hosts(int local_size) {
  return {.local_size = local_size,
          .host = {.latency = 0.8e-6, .overhead = 0.1e-6, .gap = 0.1e-6, .gap_per_byte = 0.1e-9},
          .network = {.latency = 4e-6, .overhead = 0.5e-6, .gap = 1e-6, .gap_per_byte = 0.5e-9}};
}

TEST(AllreduceCostTest, SingleRankNeedsNoTime) {
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_EQ(AllreduceTime(algorithm, Hosts(8), 1, kGiB), 0) << Name(algorithm);
  }
}

TEST(AllreduceCostTest, RingOnOneHostIsThakursFormula) {
  // 2 (p - 1) alpha + 2 (p - 1)/p n G
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, Hosts(4), 4, 4e6), 6 * 1e-6 + 2 * 0.75 * 4e6 * 0.1e-9, 1e-12);
}

TEST(AllreduceCostTest, RingOverHostsCountsBothKindsOfHopsAndTheSlowestLink) {
  // The ring has 8 hops: 3 within each of the 2 hosts, and 2 between the hosts. A phase takes 7 successive hops, one of
  // which is between the hosts.
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, Hosts(4), 8, 8e6), 2 * (6 * 1e-6 + 5e-6) + 14 * 1e6 * 0.5e-9, 1e-12);
}

TEST(AllreduceCostTest, RingsAreNoFasterThanAPortSendsMessages) {
  Cluster hosts = Hosts(1);
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, hosts, 100, 0), 198 * 5e-6, 1e-12);
  hosts.network.gap = 20e-6;
  EXPECT_NEAR(AllreduceTime(Algorithm::kRing, hosts, 100, 0), 198 * 20e-6, 1e-12);
}

TEST(AllreduceCostTest, TreeOfTinyMessagesTakesItsHops) {
  // With 16 ranks on 4 hosts, a tree has 2 levels between hosts and 2 within each host. A message passes each level
  // once on the way up and once on the way down.
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
        EXPECT_LE(time, AllreduceTime(algorithm, Hosts(8), ranks, 4 * bytes)) << Name(algorithm) << ranks;
        EXPECT_LE(time, AllreduceTime(algorithm, Hosts(8), 2 * ranks, bytes)) << Name(algorithm) << ranks;
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

struct Sample {
  double x = 0;
  double y = 0;
};

constexpr int kTensors = 161;
const LogGP kNetwork = {.latency = 3e-6, .overhead = 1e-6, .gap = 2e-6, .gap_per_byte = 1e-9};

// Returns rank 0's CPU time in seconds for a step of 161 tensors, by number of ranks. The figures are from
// docs/protocol.md.
std::vector<Sample> Measured(Coordination coordination) {
  if (coordination == Coordination::kNegotiated) {
    return {{2, 395e-6}, {64, 4520e-6}, {1024, 66400e-6}, {10240, 717000e-6}};
  }
  return {{2, 39e-6}, {64, 347e-6}, {1024, 3550e-6}, {10240, 34100e-6}};
}

TEST(CoordinationTest, MeasuredCostsAreMetWithinAQuarter) {
  const LogGP no_network;
  for (const Coordination coordination : {Coordination::kNegotiated, Coordination::kCached}) {
    for (const Sample& sample : Measured(coordination)) {
      const double time = RoundBusyTime(coordination, no_network, static_cast<int>(sample.x), kTensors);
      EXPECT_NEAR(time / sample.y, 1, 0.25) << Name(coordination) << " " << sample.x;
    }
  }
}

TEST(CoordinationTest, LockedCostsNothingAndNeitherDoesASingleRank) {
  EXPECT_EQ(RoundBusyTime(Coordination::kLocked, kNetwork, 16384, kTensors), 0);
  EXPECT_EQ(RoundLatency(Coordination::kLocked, kNetwork, 16384), 0);
  EXPECT_EQ(RoundBusyTime(Coordination::kNegotiated, kNetwork, 1, kTensors), 0);
  EXPECT_EQ(RoundLatency(Coordination::kCached, kNetwork, 1), 0);
}

TEST(CoordinationTest, CachedCostsLessThanNegotiated) {
  for (int ranks = 2; ranks <= 16384; ranks *= 2) {
    const double cached = RoundBusyTime(Coordination::kCached, kNetwork, ranks, kTensors);
    EXPECT_GT(cached, 0);
    EXPECT_LT(cached, RoundBusyTime(Coordination::kNegotiated, kNetwork, ranks, kTensors));
  }
}

TEST(CoordinationTest, MessagesOfEveryRankPassRankZerosPort) {
  const LogGP no_network;
  const double with = RoundBusyTime(Coordination::kCached, kNetwork, 1001, 0);
  const double without = RoundBusyTime(Coordination::kCached, no_network, 1001, 0);
  EXPECT_NEAR(with - without, 2 * 1000 * kNetwork.gap, 1e-12);
  EXPECT_NEAR(RoundLatency(Coordination::kCached, kNetwork, 1001), 10e-6, 1e-12);
}

TEST(CoordinationTest, NamesDiffer) {
  EXPECT_STREQ(Name(Coordination::kNegotiated), "negotiated");
  EXPECT_STREQ(Name(Coordination::kCached), "cached");
  EXPECT_STREQ(Name(Coordination::kLocked), "locked");
}

// Returns the measured allreduce times of two ranks on one host in seconds, by number of bytes.
std::vector<Sample> Recorded() {
  std::ifstream file("tests/bench/model/testdata/allreduce_2_ranks.txt");
  std::vector<Sample> samples;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Sample& sample = samples.emplace_back();
    words >> sample.x >> sample.y;
    sample.y *= 1e-6;
  }
  return samples;
}

// Compares only small and large messages. Small ones take two latencies. Large ones do not fit into the caches, and
// take as long as the model predicts for a ring.
TEST(MeasuredHostTest, ConstantsMeetTwoRanksOfOneHost) {
  const Cluster host = {.local_size = 2, .host = MeasuredHost(), .network = {}};
  int compared = 0;
  for (const Sample& sample : Recorded()) {
    if (sample.x > 64 && sample.x < (16 << 20)) continue;
    EXPECT_NEAR(AllreduceTime(Algorithm::kRing, host, 2, sample.x) / sample.y, 1, 0.15) << sample.x << " bytes";
    ++compared;
  }
  EXPECT_GE(compared, 6);
}

}  // namespace
}  // namespace ronda::bench::model
