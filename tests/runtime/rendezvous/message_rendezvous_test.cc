// SPDX-License-Identifier: Apache-2.0

// Tests the rendezvous over fake messages, between ranks that are threads of one process.
#include "runtime/rendezvous/message_rendezvous.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/message_transports.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

std::vector<MessageRendezvous::Options> OptionsOf(int size) {
  std::vector<MessageRendezvous::Options> all;
  for (RankId rank = 0; rank < size; ++rank) {
    all.push_back(
        {.job_id = absl::StrCat("job", rank),
         .claim = {.member = {.peer = {.rank = rank, .host = absl::StrCat("host", rank / 2), .pid = 100 + rank},
                              .host_id = absl::StrCat("id", rank / 2),
                              .version = "1"},
                   .size = size},
         .timeout = absl::Seconds(30)});
  }
  return all;
}

// Returns the result of each rank. Ranks after the last of `options` do not take part.
std::vector<absl::StatusOr<MemberList>> Meet(int size, std::vector<MessageRendezvous::Options> options) {
  const auto ends = ConnectFakeMessages(size, /*seed=*/7);
  std::vector<absl::StatusOr<MemberList>> results(options.size());
  std::vector<std::unique_ptr<MessageRendezvous>> meetings(options.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < options.size(); ++rank) {
    meetings[rank] = std::make_unique<MessageRendezvous>(*ends[rank], std::move(options[rank]));
    threads.emplace_back([&, rank] { results[rank] = meetings[rank]->Run(); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(MessageRendezvousTest, AllRanksLearnOfAllAndOfRank0sJob) {
  for (const int size : {1, 2, 9}) {
    for (const absl::StatusOr<MemberList>& member_list : Meet(size, OptionsOf(size))) {
      ASSERT_TRUE(member_list.ok()) << member_list.status();
      EXPECT_EQ(member_list->job_id, "job0");
      ASSERT_EQ(member_list->members.size(), static_cast<size_t>(size));
      for (RankId rank = 0; rank < size; ++rank) {
        const Member& member = member_list->members[static_cast<size_t>(rank)];
        EXPECT_EQ(ToString(member.peer),
                  absl::StrCat("rank ", rank, " (host host", rank / 2, ", pid ", 100 + rank, ")"));
        EXPECT_EQ(member.host_id, absl::StrCat("id", rank / 2));
      }
    }
  }
}

TEST(MessageRendezvousTest, MissingRankIsNamedToAllThatHaveCome) {
  std::vector<MessageRendezvous::Options> options = OptionsOf(4);
  for (MessageRendezvous::Options& of_rank : options) of_rank.timeout = absl::Seconds(1);
  options.pop_back();
  for (const absl::StatusOr<MemberList>& member_list : Meet(4, std::move(options))) {
    EXPECT_EQ(member_list.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(member_list.status().message()), HasSubstr("rank 3"));
  }
}

TEST(MessageRendezvousTest, OddVersionIsNamedToAll) {
  std::vector<MessageRendezvous::Options> options = OptionsOf(3);
  options[1].claim.member.version = "2";
  for (const absl::StatusOr<MemberList>& member_list : Meet(3, std::move(options))) {
    EXPECT_EQ(member_list.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(member_list.status().message()), HasSubstr("rank 1"));
  }
}

TEST(MessageRendezvousTest, RankThatSaysItIsAnotherIsRefused) {
  std::vector<MessageRendezvous::Options> options = OptionsOf(3);
  options[2].claim.member.peer.rank = 1;
  const auto results = Meet(3, std::move(options));
  EXPECT_EQ(results[0].status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(results[2].status(), results[0].status());
}

}  // namespace
}  // namespace ronda::testing
