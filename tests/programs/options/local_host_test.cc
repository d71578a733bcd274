// SPDX-License-Identifier: Apache-2.0

#include "programs/options/local_host.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/arguments.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::Lt;

TEST(ArgumentSourcesTest, CoresAreCountedAndAddressesListed) {
  const ArgumentSources sources = ArgumentSources::OfThisProcess();
  EXPECT_GE(sources.count_cores(), 1);
  EXPECT_LE(sources.count_cores(), sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_GE(sources.count_gpus(), 0);
  char name[256] = {};
  ASSERT_EQ(gethostname(name, sizeof(name) - 1), 0);
  EXPECT_THAT(sources.own_addresses(), Contains(std::string(name)));
  EXPECT_THAT(sources.own_addresses(), Contains(AnyOf("127.0.0.1", "::1")));
}

TEST(ArgumentSourcesTest, VariablesAreSetOrNot) {
  const ArgumentSources sources = ArgumentSources::OfThisProcess();
  ASSERT_EQ(setenv("RONDA_ARGUMENT_SOURCES_TEST", "", 1), 0);
  EXPECT_EQ(sources.variable("RONDA_ARGUMENT_SOURCES_TEST"), "");
  ASSERT_EQ(unsetenv("RONDA_ARGUMENT_SOURCES_TEST"), 0);
  EXPECT_EQ(sources.variable("RONDA_ARGUMENT_SOURCES_TEST"), std::nullopt);
}

TEST(ThisHostsCoresTest, AreThoseThatThisProcessMayRunOn) {
  const auto cores = ThisHostsCores();
  ASSERT_TRUE(cores.ok()) << cores.status();
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int count = 0;
  for (const std::vector<Core>& node : cores->nodes) {
    for (const Core& core : node) {
      for (const int cpu : core) EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(cpu), &allowed)) << cpu;
      count += static_cast<int>(core.size());
    }
  }
  EXPECT_EQ(count, CPU_COUNT(&allowed));
}

TEST(FindFreePortsTest, FindsDifferentOnesThatNoConnectionTakes) {
  int first_of_connections = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first_of_connections;
  if (first_of_connections <= 20000) GTEST_SKIP() << "connections of this host may take nearly every port";
  const std::vector<int> ports = FindFreePorts(100);
  EXPECT_THAT(ports, Each(AllOf(Gt(1023), Lt(first_of_connections))));
  EXPECT_EQ(std::set<int>(ports.begin(), ports.end()).size(), 100);
}

}  // namespace
}  // namespace ronda
