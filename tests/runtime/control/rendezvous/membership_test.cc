#include "runtime/control/rendezvous/membership.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/runtime/control/rendezvous/claims.h"

namespace ronda {
namespace {

struct Expected {
  int local_rank;
  int local_size;
  int cross_rank;
  int cross_size;
};

void ExpectTopologies(const std::vector<std::string>& host_by_rank, const std::vector<Expected>& expected) {
  Membership membership{.job_id = "j"};
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    membership.members.push_back(testing::MemberOf(static_cast<RankId>(rank), host_by_rank[rank]));
  }
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    const Topology topology = TopologyOf(membership, static_cast<RankId>(rank));
    EXPECT_EQ(topology.rank, static_cast<RankId>(rank));
    EXPECT_EQ(topology.size, static_cast<int>(host_by_rank.size()));
    EXPECT_EQ(topology.local_rank, expected[rank].local_rank) << "rank " << rank;
    EXPECT_EQ(topology.local_size, expected[rank].local_size) << "rank " << rank;
    EXPECT_EQ(topology.cross_rank, expected[rank].cross_rank) << "rank " << rank;
    EXPECT_EQ(topology.cross_size, expected[rank].cross_size) << "rank " << rank;
    EXPECT_EQ(topology.hostname, host_by_rank[rank]);
  }
}

TEST(TopologyOfTest, OneRank) { ExpectTopologies({"a"}, {{0, 1, 0, 1}}); }

TEST(TopologyOfTest, OneHost) { ExpectTopologies({"a", "a", "a"}, {{0, 3, 0, 1}, {1, 3, 0, 1}, {2, 3, 0, 1}}); }

TEST(TopologyOfTest, RanksAlternateBetweenHosts) {
  ExpectTopologies({"a", "b", "a", "b"}, {{0, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 2}, {1, 2, 1, 2}});
}

TEST(TopologyOfTest, HostsOfDifferentSizes) {
  // Local rank 1 exists on a and c only, so b does not count in their cross group.
  ExpectTopologies({"a", "a", "b", "c", "c", "c"},
                   {{0, 2, 0, 3}, {1, 2, 0, 2}, {0, 1, 1, 3}, {0, 3, 2, 3}, {1, 3, 1, 2}, {2, 3, 0, 1}});
}

TEST(MembershipTest, HostsAreNumberedByTheirLowestRank) {
  Membership membership;
  for (const char* host : {"b", "a", "b", "c", "a"}) {
    membership.members.push_back(testing::MemberOf(static_cast<RankId>(membership.members.size()), host));
  }
  EXPECT_EQ(HostsOf(membership), (std::vector<std::vector<RankId>>{{0, 2}, {1, 4}, {3}}));
}

}  // namespace
}  // namespace ronda
