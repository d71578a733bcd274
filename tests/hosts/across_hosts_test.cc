// SPDX-License-Identifier: Apache-2.0

// Tests jobs whose ranks are on several hosts. The results of all collectives must have the same bits as those of the
// kernels.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/backends/job.h"
#include "runtime/backends/read_config.h"
#include "runtime/base/config.h"
#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "tests/conformance/one_rank.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kSeedVariable[] = "TEST_SEED";

// -- Programs of ranks --

// Returns which ranks are on which host, from the ranks' host names. The job's topology does not suffice, because it
// only tells a rank about hosts that have a rank with the same local rank.
HostMap HostsOfAll(const ConnectedJob& job) {
  constexpr size_t kNameBytes = 64;
  std::string own = job.topology.hostname;
  own.resize(kNameBytes);
  const auto size = static_cast<size_t>(job.topology.size);
  std::string all(size * kNameBytes, '\0');
  const std::vector<size_t> bytes(size, kNameBytes);
  EXPECT_EQ(job.transport.communicator->Allgather({.info = {.label = "hosts", .op = OpType::kAllgather},
                                                   .input = own.data(),
                                                   .output = all.data(),
                                                   .bytes_per_rank = bytes}),
            absl::OkStatus());
  std::map<std::string, std::vector<RankId>> ranks_by_name;
  for (size_t rank = 0; rank < size; ++rank) {
    ranks_by_name[all.substr(rank * kNameBytes, kNameBytes)].push_back(static_cast<RankId>(rank));
  }
  HostMap map;
  for (const auto& [name, ranks] : ranks_by_name) map.hosts.push_back(ranks);
  std::sort(map.hosts.begin(), map.hosts.end());
  return map;
}

void Conform() {
  const absl::StatusOr<Config> config = ReadConfig(ProcessEnvironment());
  ASSERT_TRUE(config.ok()) << config.status();
  absl::StatusOr<ConnectedJob> job = ConnectJob(*config);
  ASSERT_TRUE(job.ok()) << job.status();
  Communicator& communicator = *job->transport.communicator;
  const uint64_t seed = std::strtoull(std::getenv(kSeedVariable), nullptr, 10);
  const HostMap hosts = HostsOfAll(*job);
  const bool is_flat = config->backend == "mpi" || config->backend == "tcp";
  CheckReductions(seed, is_flat ? HostMap() : hosts, communicator);
  CheckVotes(seed, communicator);
  CheckRandomWalk(seed, communicator);
  EXPECT_EQ(communicator.Barrier({.label = "leave together", .op = OpType::kBarrier}), absl::OkStatus());
  job->transport.control->Depart();
  std::printf(
      "rank %d of %d on %s has conformed over %s\n", job->topology.rank, job->topology.size,
      job->topology.hostname.c_str(),
      dynamic_cast<HierarchicalCommunicator*>(&communicator) != nullptr ? "hierarchical" : config->backend.c_str());
}

// -- The tests --

class AcrossHostsTest : public HostsTest {
 protected:
  // Returns the name of the communicator that this value of RONDA_BACKEND selects.
  static std::string CommunicatorOf(const std::string& backend) {
    return backend == "mpi" || backend == "tcp" ? backend : "hierarchical";
  }

  static void ExpectConforms(const std::vector<int>& slots, const std::string& backend, NetworkHosts::Family family) {
    const auto hosts = MakeHosts({.count = static_cast<int>(slots.size()), .family = family});
    ASSERT_NE(hosts, nullptr);
    const unsigned seed = std::random_device()();
    std::cout << "seed " << seed << "\n";
    HostsJob job = RankProgramJob(slots, "conform");
    job.env.emplace_back(kSeedVariable, absl::StrCat(seed));
    if (!backend.empty()) job.env.emplace_back("RONDA_BACKEND", backend);
    const ProcessResult result = RunAcross(*hosts, job);
    ASSERT_EQ(result.exit_code, 0) << "seed " << seed << ", said:\n" << result.output;
    const int size = std::accumulate(slots.begin(), slots.end(), 0);
    int rank = 0;
    for (int host = 0; host < hosts->count(); ++host) {
      for (int i = 0; i < slots[host]; ++i, ++rank) {
        EXPECT_THAT(result.output, HasSubstr(absl::StrCat("rank ", rank, " of ", size, " on ", hosts->NameOf(host),
                                                          " has conformed over ", CommunicatorOf(backend))));
      }
    }
  }
};

TEST_F(AcrossHostsTest, TwoRanksOnEachOfTwoHostsInTwoLevels) {
  ExpectConforms({2, 2}, "", NetworkHosts::Family::kIPv4);
}

TEST_F(AcrossHostsTest, TwoRanksOnEachOfTwoHostsFlat) { ExpectConforms({2, 2}, "mpi", NetworkHosts::Family::kIPv4); }

TEST_F(AcrossHostsTest, TwoRanksOnEachOfTwoHostsFlatOverTcp) {
  ExpectConforms({2, 2}, "tcp", NetworkHosts::Family::kIPv4);
}

TEST_F(AcrossHostsTest, ThreeHostsWithDifferentNumbersOfRanks) {
  ExpectConforms({1, 3, 2}, "", NetworkHosts::Family::kIPv4);
}

TEST_F(AcrossHostsTest, ThreeHostsWithDifferentNumbersOfRanksOverTcp) {
  ExpectConforms({1, 3, 2}, "hierarchical-tcp", NetworkHosts::Family::kIPv4);
}

TEST_F(AcrossHostsTest, HostsThatHaveAddressesOfIPv6Only) { ExpectConforms({1, 2}, "", NetworkHosts::Family::kIPv6); }

TEST_F(AcrossHostsTest, HostsThatHaveAddressesOfIPv6OnlyOverTcp) {
  ExpectConforms({1, 2}, "hierarchical-tcp", NetworkHosts::Family::kIPv6);
}

}  // namespace

std::vector<RankProgram> AcrossHostsPrograms() { return {{"conform", Conform}}; }

}  // namespace ronda::testing
