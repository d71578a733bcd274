#include "runtime/base/slurm_lists.h"

#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

TEST(SlurmListsTest, FirstHostOfEveryForm) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"node", "node"},
      {"node7,node9", "node7"},
      {"n[01-03,7]", "n01"},
      {"n[7]", "n7"},
      {"n[7,9-12],m2", "n7"},
      {"a,n[1-2]", "a"},
      {"rack[1-2]-a", "rack1-a"},
      {"rack[1-2]n[003-004]x,other", "rack1n003x"},
      {"[1-2]", "1"},
  };
  for (const auto& [list, first] : cases) EXPECT_EQ(FirstSlurmHost(list), first) << list;
}

TEST(SlurmListsTest, WhatIsNoListOfHosts) {
  for (const char* list : {"", ",", "n[", "n[]", "n[1", "n]1[", "n[-2]", "n[,]"}) {
    EXPECT_EQ(FirstSlurmHost(list), std::nullopt) << list;
  }
}

TEST(SlurmListsTest, CountsOfTasks) {
  EXPECT_THAT(SlurmTaskCounts("4").value(), ElementsAre(4));
  EXPECT_THAT(SlurmTaskCounts("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(SlurmTaskCounts("1,0,12(x2)").value(), ElementsAre(1, 0, 12, 12));
}

TEST(SlurmListsTest, WhatIsNoListOfCounts) {
  for (const char* list : {"", "2,", "x", "-1", "2(3)", "2(x)", "2(x0)", "2(x-1)", "2(x3", "1(x1048576),1",
                           "1(x2147483647),1(x2147483647)", "99999999999"}) {
    EXPECT_EQ(SlurmTaskCounts(list), std::nullopt) << list;
  }
}

}  // namespace
}  // namespace ronda
