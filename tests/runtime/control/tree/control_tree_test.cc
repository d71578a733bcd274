#include "runtime/control/tree/control_node.h"

#include <gtest/gtest.h>

namespace ronda {
namespace {

TEST(ControlTreeTest, EveryRankIsTheChildOfItsParentAlone) {
  for (const int fan_out : {1, 2, 3, 64}) {
    for (const int size : {1, 2, 5, 65, 66, 200}) {
      const ControlTree tree = {.size = size, .fan_out = fan_out};
      std::vector<int> parents(size);
      for (RankId rank = 0; rank < size; ++rank) {
        for (const RankId child : tree.Children(rank)) {
          EXPECT_EQ(tree.Parent(child), rank);
          ++parents[child];
        }
      }
      for (RankId rank = 1; rank < size; ++rank) EXPECT_EQ(parents[rank], 1) << rank << " of " << size;
      EXPECT_EQ(parents[0], 0);
    }
  }
}

TEST(ControlTreeTest, RanksAreWithinThoseThroughWhichTheyReachRankZero) {
  const ControlTree binary = {.size = 7, .fan_out = 2};
  EXPECT_TRUE(binary.IsWithin(6, 6));
  EXPECT_TRUE(binary.IsWithin(6, 2));
  EXPECT_TRUE(binary.IsWithin(6, 0));
  EXPECT_FALSE(binary.IsWithin(6, 1));
  EXPECT_FALSE(binary.IsWithin(6, 5));
  EXPECT_FALSE(binary.IsWithin(2, 6));
}

TEST(ControlTreeTest, UpToSixtyFiveRanksAreRankZeroAndItsChildren) {
  for (RankId rank = 1; rank < 65; ++rank) EXPECT_EQ(ControlParent(rank), 0);
  EXPECT_EQ(ControlParent(65), 1);
  EXPECT_FALSE(HasControlChildren(0, 1));
  EXPECT_TRUE(HasControlChildren(0, 2));
  EXPECT_FALSE(HasControlChildren(1, 65));
  EXPECT_TRUE(HasControlChildren(1, 66));
}

}  // namespace
}  // namespace ronda
