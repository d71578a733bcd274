// SPDX-License-Identifier: Apache-2.0

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rendezvous/rendezvous_table.h"
#include "tests/runtime/rendezvous/claims.h"

namespace ronda {
namespace {

using ::ronda::testing::ClaimOf;
using ::ronda::testing::MemberOf;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

RendezvousTable MakeTable(int size) {
  return RendezvousTable({.job_id = "job", .size = size, .coordinator = MemberOf(0)});
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(RendezvousTableTest, JobOfOneIsCompleteAtOnce) { EXPECT_TRUE(MakeTable(1).complete()); }

TEST(RendezvousTableTest, MembershipListsRanksInOrderHoweverTheyCame) {
  RendezvousTable table = MakeTable(3);
  ASSERT_TRUE(table.Add(ClaimOf(2, 3)).ok());
  EXPECT_FALSE(table.complete());
  ASSERT_TRUE(table.Add(ClaimOf(1, 3)).ok());
  ASSERT_TRUE(table.complete());
  const MemberList member_list = table.member_list();
  EXPECT_EQ(member_list.job_id, "job");
  ASSERT_EQ(member_list.members.size(), 3u);
  for (RankId rank = 0; rank < 3; ++rank) EXPECT_EQ(member_list.members[rank].peer.pid, 1000 + rank);
}

TEST(RendezvousTableTest, SecondProcessOfARankIsRefusedNamingBoth) {
  RendezvousTable table = MakeTable(3);
  ASSERT_TRUE(table.Add(ClaimOf(1, 3)).ok());
  JoinClaim twin = ClaimOf(1, 3);
  twin.member.peer = {.rank = 1, .host = "b", .pid = 77};
  const absl::Status status = table.Add(twin);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 1 (host a, pid 1001)"), HasSubstr("rank 1 (host b, pid 77)")));
}

TEST(RendezvousTableTest, SecondRankZeroIsRefused) {
  RendezvousTable table = MakeTable(2);
  JoinClaim impostor = ClaimOf(0, 2);
  impostor.member.peer.pid = 5;
  EXPECT_EQ(table.Add(impostor).code(), absl::StatusCode::kAlreadyExists);
}

TEST(RendezvousTableTest, AnotherSizeIsRefusedNamingBoth) {
  RendezvousTable table = MakeTable(4);
  const absl::Status status = table.Add(ClaimOf(3, 8));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 3 (host a, pid 1003)"), HasSubstr("8 ranks"),
                                  HasSubstr("rank 0 (host a, pid 1000) says 4")));
}

// A rank of an earlier epoch cannot succeed by retrying. A rank of a later epoch can, once rank 0 has reached that
// epoch.
TEST(RendezvousTableTest, AnotherEpochIsRefusedNamingBoth) {
  RendezvousTable table({.job_id = "job", .size = 2, .epoch = 3, .coordinator = MemberOf(0)});
  for (const auto& [epoch, code] :
       {std::pair(2, absl::StatusCode::kFailedPrecondition), std::pair(4, absl::StatusCode::kAborted)}) {
    JoinClaim claim = ClaimOf(1, 2);
    claim.epoch = epoch;
    const absl::Status status = table.Add(claim);
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 1 (host a, pid 1001)"), HasSubstr(absl::StrCat("epoch ", epoch)),
                                    HasSubstr("rank 0 (host a, pid 1000) is in epoch 3")));
    EXPECT_FALSE(table.complete());
  }
  JoinClaim claim = ClaimOf(1, 2);
  claim.epoch = 3;
  EXPECT_TRUE(table.Add(claim).ok());
}

TEST(RendezvousTableTest, RanksOutsideTheJobAreRefused) {
  RendezvousTable table = MakeTable(4);
  for (const RankId rank : {-1, 4, 1 << 30}) {
    EXPECT_EQ(table.Add(ClaimOf(rank, 4)).code(), absl::StatusCode::kInvalidArgument) << rank;
  }
}

TEST(RendezvousTableTest, OddRankIsNamedOnceAllAreThere) {
  RendezvousTable table = MakeTable(3);
  JoinClaim old = ClaimOf(1, 3);
  old.member.version = "0.9";
  ASSERT_TRUE(table.Add(old).ok());
  ASSERT_TRUE(table.Add(ClaimOf(2, 3)).ok());
  const absl::Status status = table.Agreement();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("rank 1 (host a, pid 1001) has 0.9, but ranks 0, 2 (on a) have 1.0"));
}

TEST(RendezvousTableTest, MissingRanksAreNamedAtTheDeadline) {
  RendezvousTable table = MakeTable(4);
  ASSERT_TRUE(table.Add(ClaimOf(2, 4)).ok());
  const absl::Status status = table.DeadlineError(absl::Seconds(30));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(status), HasSubstr("ranks 1, 3 of 4 did not join rank 0 (host a, pid 1000) within 30s"));
}

TEST(RendezvousTableTest, DeadlineErrorSaysWhoWasRefusedAndWhoLeft) {
  RendezvousTable table = MakeTable(3);
  EXPECT_FALSE(table.Add(ClaimOf(1, 8)).ok());
  ASSERT_TRUE(table.Add(ClaimOf(2, 3)).ok());
  table.Remove(2);
  EXPECT_THAT(Text(table.DeadlineError(absl::Seconds(1))),
              AllOf(HasSubstr("ranks 1, 2 of 3"), HasSubstr("says that the job has 8 ranks"),
                    HasSubstr("rank 2 (host a, pid 1002) had joined but went away")));
}

TEST(RendezvousTableTest, DeadlineErrorOfALargeJobStaysShort) {
  RendezvousTable table = MakeTable(10000);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(table.Add(ClaimOf(1, 8)).ok());
  const std::string text = Text(table.DeadlineError(absl::Seconds(1)));
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 1, 2, 3,"), HasSubstr("and 9983 more of 10000"), Not(HasSubstr(", 17 "))));
  EXPECT_LT(text.size(), 1500u);
}

TEST(RendezvousTableTest, PlaceOfARankThatLeftCanBeTakenAgain) {
  RendezvousTable table = MakeTable(3);
  ASSERT_TRUE(table.Add(ClaimOf(1, 3)).ok());
  table.Remove(1);
  EXPECT_TRUE(table.Add(ClaimOf(1, 3)).ok());
}

// Compares a table with a map from rank to pid, under random claims and departures.
TEST(RendezvousTableTest, AgreesWithAMapUnderRandomClaimsAndDepartures) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const int size = 2 + static_cast<int>(random() % 7);
    RendezvousTable table = MakeTable(size);
    std::map<RankId, pid_t> model = {{0, 1000}};
    while (!table.complete()) {
      JoinClaim claim = ClaimOf(static_cast<RankId>(random() % (size + 2)) - 1, size + (random() % 4 == 0 ? 1 : 0));
      claim.member.peer.pid = static_cast<pid_t>(1 + random() % 30000);
      const RankId rank = claim.member.peer.rank;
      const bool welcome = claim.size == size && rank >= 0 && rank < size && model.count(rank) == 0;
      ASSERT_EQ(table.Add(claim).ok(), welcome) << "rank " << rank;
      if (welcome) model[rank] = claim.member.peer.pid;
      const RankId leaver = static_cast<RankId>(random() % size);
      if (random() % 4 == 0 && leaver != 0 && !table.complete() && model.erase(leaver) == 1) table.Remove(leaver);
      ASSERT_EQ(table.complete(), static_cast<int>(model.size()) == size);
    }
    const MemberList member_list = table.member_list();
    for (RankId rank = 0; rank < size; ++rank) ASSERT_EQ(member_list.members[rank].peer.pid, model[rank]);
  }
}

struct Expected {
  int local_rank;
  int local_size;
  int cross_rank;
  int cross_size;
};

void ExpectTopologies(const std::vector<std::string>& host_by_rank, const std::vector<Expected>& expected) {
  MemberList member_list{.job_id = "j"};
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    member_list.members.push_back(testing::MemberOf(static_cast<RankId>(rank), host_by_rank[rank]));
  }
  for (size_t rank = 0; rank < host_by_rank.size(); ++rank) {
    const Topology topology = TopologyOf(member_list, static_cast<RankId>(rank));
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
  // Only hosts a and c have a rank with local rank 1, so the cross group of these ranks does not include b.
  ExpectTopologies({"a", "a", "b", "c", "c", "c"},
                   {{0, 2, 0, 3}, {1, 2, 0, 2}, {0, 1, 1, 3}, {0, 3, 2, 3}, {1, 3, 1, 2}, {2, 3, 0, 1}});
}

TEST(MembershipTest, HostsAreNumberedByTheirLowestRank) {
  MemberList member_list;
  for (const char* host : {"b", "a", "b", "c", "a"}) {
    member_list.members.push_back(testing::MemberOf(static_cast<RankId>(member_list.members.size()), host));
  }
  EXPECT_EQ(HostsOf(member_list), (std::vector<std::vector<RankId>>{{0, 2}, {1, 4}, {3}}));
}

}  // namespace

}  // namespace ronda
