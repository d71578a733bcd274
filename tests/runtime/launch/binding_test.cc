#include "runtime/launch/binding.h"

#include <sched.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/launch/this_hosts_cores.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Binding = LaunchOptions::Binding;

// Two memory nodes with two cores each, and two threads on each of these, numbered as Linux does.
HostCores Cores() { return {.nodes = {{{0, 4}, {1, 5}}, {{2, 6}, {3, 7}}}}; }

TEST(BindingTest, RanksRunAnywhereUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNone, 0, 2), IsEmpty());
}

TEST(BindingTest, EveryRankHasACoreOfItsOwn) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kCore, 0, 4), ElementsAre(0, 4));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kCore, 3, 4), ElementsAre(3, 7));
}

TEST(BindingTest, RanksThatOutnumberCoresShareThem) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kCore, 5, 6), ElementsAre(1, 5));
}

TEST(BindingTest, RanksAreSpreadOverMemoryNodes) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 0, 3), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 1, 3), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 2, 3), ElementsAre(2, 6, 3, 7));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 0, 1), ElementsAre(0, 4, 1, 5));
}

TEST(BindingTest, HostWithoutKnownCoresBindsNothing) { EXPECT_THAT(CpusOfRank({}, Binding::kCore, 0, 1), IsEmpty()); }

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

}  // namespace
}  // namespace ronda
