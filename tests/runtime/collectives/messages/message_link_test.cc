// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/messages/message_link.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "tests/runtime/collectives/messages/link_ranks.h"

namespace ronda::testing {
namespace {

CallInfo Info(absl::Duration deadline = absl::Seconds(50)) {
  return {.label = "conv1", .op = OpType::kAllgather, .limits = {.deadline = deadline}};
}

TEST(MessageLinkTest, TransfersEndInAnyOrder) {
  const auto links = ConnectLinks(3, 1);
  OnEveryLink(links, [](MessageLink& link) {
    TransferSet transfers;
    std::vector<std::string> received(3, "?");
    const std::string sent(1, static_cast<char>('a' + link.rank()));
    for (RankId other = 0; other < 3; ++other) {
      if (other == link.rank()) continue;
      ASSERT_EQ(link.Receive(received[static_cast<size_t>(other)].data(), 1, other, transfers), absl::OkStatus());
      ASSERT_EQ(link.Send(sent.data(), 1, other, transfers), absl::OkStatus());
    }
    ASSERT_EQ(link.Wait(transfers, link.Running(Info(), 2)), absl::OkStatus());
    received[static_cast<size_t>(link.rank())] = sent;
    EXPECT_EQ(received, (std::vector<std::string>{"a", "b", "c"}));
  });
}

TEST(MessageLinkTest, EmptyTransferSendsNoMessage) {
  const auto links = ConnectLinks(2, 1);
  TransferSet transfers;
  EXPECT_EQ(links[0]->Receive(nullptr, 0, 1, transfers), absl::OkStatus());
  EXPECT_EQ(links[0]->Wait(transfers, links[0]->Running(Info(absl::ZeroDuration()), 0)), absl::OkStatus());
}

TEST(MessageLinkTest, LateRankIsNamedAsTheJobKnowsIt) {
  const auto links = ConnectLinks(3, 1);
  TransferSet transfers;
  char bytes[2] = {};
  // The message from rank 1 has arrived, but rank 2 is late.
  TransferSet of_rank1;
  ASSERT_EQ(links[1]->Send(bytes, 1, 0, of_rank1), absl::OkStatus());
  std::thread rank1([&] { ASSERT_EQ(links[1]->Wait(of_rank1, links[1]->Running(Info(), 1)), absl::OkStatus()); });
  ASSERT_EQ(links[0]->Receive(&bytes[0], 1, 1, transfers), absl::OkStatus());
  ASSERT_EQ(links[0]->Receive(&bytes[1], 1, 2, transfers), absl::OkStatus());
  const absl::Status status = links[0]->Wait(transfers, links[0]->Running(Info(absl::Milliseconds(20)), 2));
  rank1.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(),
            "waited 20ms for rank 12 (host h12, pid 102) in allgather 'conv1', 0 of 2 bytes done; rank 12 has done "
            "nothing yet");
}

TEST(MessageLinkTest, DeadlineGrowsWithTheDistanceToTheLateRank) {
  const auto links = ConnectLinks(2, 1);
  const CallInfo info = Info(absl::Seconds(1));
  EXPECT_EQ(links[0]->Running(info, 1).limits.deadline, absl::Seconds(1));
  EXPECT_GT(links[0]->Running(info, 1, 1).limits.deadline, absl::Seconds(1));
  EXPECT_GT(links[0]->Running(info, 1, 2).limits.deadline, links[0]->Running(info, 1, 1).limits.deadline);
}

TEST(MessageLinkTest, FailureOfTheJobEndsAWait) {
  const absl::Status failure = absl::DataLossError("disk on fire");
  const auto links = ConnectLinks(2, 1, [&] { return failure; });
  TransferSet transfers;
  char byte = 0;
  ASSERT_EQ(links[0]->Receive(&byte, 1, 1, transfers), absl::OkStatus());
  EXPECT_EQ(links[0]->Wait(transfers, links[0]->Running(Info(), 1)), failure);
}

// A link may connect only a few of the host's ranks. To decide whether ranks share cores, it needs the number of all
// ranks on the host.
TEST(MessageLinkTest, RankAmongMoreThanThereAreCoresHandsItsCoreOver) {
  for (const std::optional<int> ranks_on_host : {std::optional<int>(), std::optional<int>(1 << 20)}) {
    auto ends = ConnectFakeMessages(2, 1);
    const MessageLink link({.messages = std::move(ends[0]),
                            .peers = {LinkPeer(0), LinkPeer(1)},
                            .flights = std::make_shared<FlightBoard>(12),
                            .job_failure = [] { return absl::OkStatus(); },
                            .ranks_on_host = ranks_on_host});
    EXPECT_EQ(link.keeps_core(), !ranks_on_host.has_value());
  }
}

// A fake of PointToPoint. The awaited message arrives after `polls` calls of Test, or at the first call of Rest.
class AwaitedMessages : public PointToPoint {
 public:
  AwaitedMessages(int polls, bool rest_ends_with_data, bool* has_rested)
      : polls_left_(polls), rest_ends_with_data_(rest_ends_with_data), has_rested_(has_rested) {}

  RankId rank() const override { return 0; }
  int size() const override { return 2; }
  absl::StatusOr<Request> Send(const void*, size_t, RankId) override { return Request{}; }
  absl::StatusOr<Request> Receive(void*, size_t, RankId) override { return Request{}; }
  absl::StatusOr<bool> Test(absl::Span<Request>) override { return *has_rested_ || --polls_left_ < 0; }
  void Rest(absl::Duration) override { *has_rested_ = true; }
  bool rest_ends_with_data() const override { return rest_ends_with_data_; }

 private:
  int polls_left_;
  const bool rest_ends_with_data_;
  bool* const has_rested_;
};

// Returns whether a rank that shares its core rests if its message arrives after `polls` polls.
bool RestsUntilMessageComes(int polls, bool rest_ends_with_data) {
  bool has_rested = false;
  MessageLink link({.messages = std::make_unique<AwaitedMessages>(polls, rest_ends_with_data, &has_rested),
                    .peers = {LinkPeer(0), LinkPeer(1)},
                    .flights = std::make_shared<FlightBoard>(12),
                    .job_failure = [] { return absl::OkStatus(); },
                    .ranks_on_host = 1 << 20});
  TransferSet transfers;
  char byte = 0;
  EXPECT_EQ(link.Receive(&byte, 1, 1, transfers), absl::OkStatus());
  EXPECT_EQ(link.Wait(transfers, link.Running(Info(), 1)), absl::OkStatus());
  return has_rested;
}

TEST(MessageLinkTest, RankThatSharesItsCoreRestsUntilAMessageComes) {
  for (const bool rest_ends_with_data : {false, true}) {
    EXPECT_TRUE(RestsUntilMessageComes(std::numeric_limits<int>::max(), rest_ends_with_data));
    EXPECT_FALSE(RestsUntilMessageComes(0, rest_ends_with_data));
  }
}

TEST(CoreYieldsTest, ALongYieldMakesTheNextWaitsSleep) {
  CoreYields yields;
  ASSERT_TRUE(yields.MayBegin());
  EXPECT_TRUE(yields.MayGoOn(absl::Microseconds(1)));
  EXPECT_TRUE(yields.MayBegin());
  EXPECT_FALSE(yields.MayGoOn(2 * CoreYields::kLong));
  for (int i = 0; i < CoreYields::kWaitsThatSleep; ++i) EXPECT_FALSE(yields.MayBegin()) << i;
  EXPECT_TRUE(yields.MayBegin());
}

// When a peer ends, a send to the peer or a receive from it fails first. A little later, the job's failure names the
// peer.
TEST(MessageLinkTest, FailureOfTheJobExplainsAnErrorOfTheLibrary) {
  int times_asked = 0;
  const absl::Status failure = absl::AbortedError("rank 11 has been killed");
  const auto links = ConnectLinks(2, 1, [&] { return ++times_asked < 3 ? absl::OkStatus() : failure; });
  TransferSet transfers;
  char bytes[2] = {};
  ASSERT_EQ(links[0]->Receive(bytes, 2, 1, transfers), absl::OkStatus());
  TransferSet of_rank1;
  ASSERT_EQ(links[1]->Send(bytes, 1, 0, of_rank1), absl::OkStatus());  // a message of another size is an error
  EXPECT_EQ(links[0]->Wait(transfers, links[0]->Running(Info(), 1)), failure);
  EXPECT_GE(times_asked, 3);
}

}  // namespace
}  // namespace ronda::testing
