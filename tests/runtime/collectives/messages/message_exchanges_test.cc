// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/messages/message_exchanges.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "tests/runtime/collectives/messages/link_ranks.h"

namespace ronda::testing {
namespace {

constexpr CallInfo kInfo = {.label = "x", .limits = {.deadline = absl::Seconds(50)}};

// Numbers of ranks for exchanges with one step and with several steps. If the number is not a power of 8, the last step
// exchanges fewer blocks than the others. Up to 8 ranks exchange directly, and up to 64 ranks in two steps.
constexpr int kSizes[] = {1, 2, 7, 8, 9, 20, 65};

TEST(DisseminationTest, BlocksOfAllReachAll) {
  for (int size : kSizes) {
    const auto links = ConnectLinks(size, static_cast<uint64_t>(size));
    OnEveryLink(links, [&](MessageLink& link) {
      Dissemination exchange(link);
      const Members members(kInfo, link.rank(), size);
      // The sizes differ, so that data left over from an earlier exchange is noticed.
      for (size_t bytes : {size_t{3}, size_t{21}, size_t{0}, size_t{8}}) {
        const auto block = [&](int member) { return std::string(bytes, static_cast<char>('!' + member)); };
        const std::string own = block(link.rank());
        own.copy(exchange.Begin(members, bytes), bytes);
        ASSERT_EQ(exchange.Run(kInfo, bytes), absl::OkStatus());
        for (int member = 0; member < size; ++member) {
          EXPECT_EQ(std::string(exchange.BlockOf(member), bytes), block(member)) << size;
        }
      }
    });
  }
}

TEST(DisseminationTest, VotesOfAllReachAll) {
  for (int size : kSizes) {
    const auto links = ConnectLinks(size, static_cast<uint64_t>(size));
    OnEveryLink(links, [&](MessageLink& link) {
      Dissemination exchange(link);
      const Members members(kInfo, link.rank(), size);
      for (RankId vetoing : {0, size / 2, size - 1, size}) {
        const auto when_late = [] {};
        Ballot ballot = {.own = vetoing == link.rank() ? Ballot::Vote::kVeto : Ballot::Vote::kApprove,
                         .when_late = when_late};
        CallInfo info = kInfo;
        info.ballot = &ballot;
        exchange.Begin(members, 5);
        ASSERT_EQ(exchange.Run(info, 5), absl::OkStatus());
        EXPECT_EQ(ballot.result, vetoing == size ? Ballot::Result::kCarriedOut : Ballot::Result::kVetoed);
      }
    });
  }
}

TEST(DisseminationTest, GroupsExchangeAmongThemselves) {
  constexpr int kSize = 12;
  const Group group({1, 3, 4, 5, 6, 7, 8, 9, 11});
  const auto links = ConnectLinks(kSize, 3);
  OnEveryLink(links, [&](MessageLink& link) {
    CallInfo info = kInfo;
    info.group = &group;
    const Members members(info, link.rank(), kSize);
    if (!members.IncludeSelf()) return;
    Dissemination exchange(link);
    *exchange.Begin(members, 1) = static_cast<char>(link.rank());
    ASSERT_EQ(exchange.Run(info, 1), absl::OkStatus());
    for (int member = 0; member < group.size(); ++member) EXPECT_EQ(*exchange.BlockOf(member), group[member]);
  });
}

// In the second step, a rank waits for ranks that may themselves wait for the late rank. The first rank to give up must
// be one that waits for the late rank itself.
TEST(DisseminationTest, FirstToGiveUpNamesTheLateRank) {
  constexpr int kSize = 20;
  constexpr RankId kLate = 13;
  Mutex mu;
  absl::Status failure;
  const auto links = ConnectLinks(kSize, 5, [&] {
    const MutexLock lock(&mu);
    return failure;
  });
  std::atomic<int> started{0};
  OnEveryLink(links, [&](MessageLink& link) {
    started.fetch_add(1);
    while (started.load() < kSize) std::this_thread::yield();
    if (link.rank() == kLate) return;
    const CallInfo info = {.label = "x", .limits = {.deadline = absl::Seconds(1)}};
    Dissemination exchange(link);
    const Members members(info, link.rank(), kSize);
    exchange.Begin(members, 1);
    const absl::Status status = exchange.Run(info, 1);
    const MutexLock lock(&mu);
    if (failure.ok()) failure = status;
  });
  EXPECT_TRUE(absl::StrContains(failure.message(), absl::StrCat("waited 1s for ", ToString(LinkPeer(kLate)))))
      << failure;
}

}  // namespace
}  // namespace ronda::testing
