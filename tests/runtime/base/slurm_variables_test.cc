// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/slurm_variables.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

TEST(SlurmListsTest, HostsOfEveryForm) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"node", "node"},
      {"node7,node9", "node7 node9"},
      {"gpu[01-03,7],login", "gpu01 gpu02 gpu03 gpu7 login"},
      {"n[7]", "n7"},
      {"n[7,9-12],m2", "n7 n9 n10 n11 n12 m2"},
      {"n[099-101]", "n099 n100 n101"},
      {"a,n[1-2]", "a n1 n2"},
      {"rack[1-2]-a", "rack1-a rack2-a"},
      {"rack[1-2]n[003-004]x,other", "rack1n003x rack1n004x rack2n003x rack2n004x other"},
      {"[1-2]", "1 2"},
  };
  for (const auto& [list, hosts] : cases) {
    const auto read = SlurmHosts(list);
    ASSERT_TRUE(read.has_value()) << list;
    EXPECT_EQ(absl::StrJoin(*read, " "), hosts) << list;
  }
}

TEST(SlurmListsTest, InvalidListOfHostsIsRefused) {
  for (const char* list : {"",
                           ",",
                           "a,",
                           ",a",
                           "a,,b",
                           "n[",
                           "n[]",
                           "n[1",
                           "n]1[",
                           "n[-2]",
                           "n[,]",
                           "n[1,]",
                           "n[1-]",
                           "n[3-1]",
                           "n[1-2-3]",
                           "n[a]",
                           "n[1-x]",
                           "n[[1-2]]",
                           "n[1-2]]",
                           "n[+1]",
                           "n[ 1]",
                           "n[1],",
                           "n[1-2],]x",
                           "n[1-1048577]",
                           "n[0-4294967295]",
                           "a[1-1025]b[1-1024]",
                           "n[99999999999]",
                           "a[1-1048576],b"}) {
    EXPECT_EQ(SlurmHosts(list), std::nullopt) << list;
  }
  EXPECT_EQ(SlurmHosts("n[1-1048576]").value().size(), 1048576u);
}

TEST(SlurmListsTest, CountsOfTasks) {
  EXPECT_THAT(SlurmTaskCounts("4").value(), ElementsAre(4));
  EXPECT_THAT(SlurmTaskCounts("2(x3),1").value(), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(SlurmTaskCounts("1,0,12(x2)").value(), ElementsAre(1, 0, 12, 12));
}

TEST(SlurmListsTest, InvalidListOfCountsIsRefused) {
  for (const char* list : {"", "2,", "x", "-1", "2(3)", "2(x)", "2(x0)", "2(x-1)", "2(x3", "1(x1048576),1",
                           "1(x2147483647),1(x2147483647)", "99999999999"}) {
    EXPECT_EQ(SlurmTaskCounts(list), std::nullopt) << list;
  }
}

}  // namespace
}  // namespace ronda
