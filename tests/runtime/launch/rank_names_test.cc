#include "runtime/launch/rank_names.h"

#include "gtest/gtest.h"

namespace ronda {
namespace {

TEST(RankNamesTest, FewAreAllNamed) {
  EXPECT_EQ(NameRanks({2}), "rank 2");
  EXPECT_EQ(NameRanks({0, 3}), "ranks 0 and 3");
  EXPECT_EQ(NameRanks({0, 1, 3}), "ranks 0, 1 and 3");
  EXPECT_EQ(NameRanks({0, 1, 2, 3, 4, 5, 6, 7}), "ranks 0, 1, 2, 3, 4, 5, 6 and 7");
}

TEST(RankNamesTest, OfManyTheFirstAreNamedAndTheRestCounted) {
  EXPECT_EQ(NameRanks({0, 1, 2, 3, 4, 5, 6, 7, 8}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more");
  EXPECT_EQ(NameHosts({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}), "hosts a, b, c, d, e, f, g, h and 2 more");
}

TEST(RankNamesTest, HostsAreNamedAsRanksAre) {
  EXPECT_EQ(NameHosts({"beta"}), "host beta");
  EXPECT_EQ(NameHosts({"alpha", "beta"}), "hosts alpha and beta");
}

}  // namespace
}  // namespace ronda
