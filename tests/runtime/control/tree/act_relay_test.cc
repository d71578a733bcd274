#include "runtime/control/tree/control_node.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

constexpr absl::Duration kStandstill = absl::Seconds(1);
// On the recorder's clock.
constexpr FlightTime kBegin = absl::Hours(1);

// A rank of four, two a host, with a board of its own.
struct Relay {
  explicit Relay(RankId rank) : relay({.rank = rank, .peers = Peers(), .standstill = kStandstill, .flights = board}) {}

  static std::vector<Peer> Peers() {
    std::vector<Peer> peers;
    for (RankId rank = 0; rank < 4; ++rank) peers.push_back({.rank = rank, .host = absl::StrCat("host", rank / 2)});
    return peers;
  }

  std::shared_ptr<FlightBoard> board = std::make_shared<FlightBoard>(4);
  EventRelay relay;
};

void Record(const Relay& at, RankId rank, const std::string& name, FlightTime time) {
  at.board->Of(rank).Record(FlightKind::kStarted, OpType::kAllreduce, name, 64, time);
}

TEST(ActRelayTest, ActThatNothingFollowsTravelsUpOnce) {
  Relay leaf(3);
  Record(leaf, 3, "a", kBegin);
  EXPECT_TRUE(leaf.relay.Take(kBegin + kStandstill / 2).up.empty());
  const EventRelay::News news = leaf.relay.Take(kBegin + 2 * kStandstill);
  ASSERT_EQ(news.up.size(), 1U);
  EXPECT_TRUE(news.down.empty());
  EXPECT_EQ(news.up[0].rank, 3);
  EXPECT_EQ(news.up[0].name, "a");
  EXPECT_EQ(news.up[0].age, 2 * kStandstill);
  EXPECT_TRUE(leaf.relay.Take(kBegin + 3 * kStandstill).up.empty());
  Record(leaf, 3, "b", kBegin + 4 * kStandstill);
  EXPECT_EQ(leaf.relay.Take(kBegin + 5 * kStandstill).up.at(0).name, "b");
}

TEST(ActRelayTest, BusyRankTellsNothing) {
  Relay leaf(3);
  for (int i = 0; i < 10; ++i) {
    Record(leaf, 3, absl::StrCat(i), kBegin + i * kStandstill);
    EXPECT_TRUE(leaf.relay.Take(kBegin + i * kStandstill + kStandstill / 2).up.empty());
  }
}

TEST(ActRelayTest, RankZeroTellsItsOwnToAll) {
  Relay root(0);
  Record(root, 0, "a", kBegin);
  const EventRelay::News news = root.relay.Take(kBegin + kStandstill);
  EXPECT_TRUE(news.up.empty());
  ASSERT_EQ(news.down.size(), 1U);
  EXPECT_EQ(news.down[0].rank, 0);
}

TEST(ActRelayTest, ActsFromBelowGoUpAndComeBackDownGrowingOlder) {
  const Act act = {.rank = 3, .kind = FlightKind::kWaiting, .name = "a", .bytes = 8, .age = absl::Seconds(5)};
  Relay inner(1);
  inner.relay.TakeFromBelow({act}, kBegin);
  const EventRelay::News up = inner.relay.Take(kBegin + absl::Seconds(1));
  ASSERT_EQ(up.up.size(), 1U);
  EXPECT_TRUE(up.down.empty());
  EXPECT_EQ(up.up[0].age, absl::Seconds(6));

  Relay root(0);
  root.relay.TakeFromBelow(up.up, kBegin);
  const EventRelay::News down = root.relay.Take(kBegin);
  EXPECT_TRUE(down.up.empty());
  ASSERT_EQ(down.down.size(), 1U);
  const std::optional<FlightEvent> noted = root.board->Of(3).Last();
  ASSERT_TRUE(noted.has_value());
  EXPECT_EQ(noted->kind, FlightKind::kWaiting);
  EXPECT_EQ(noted->name, "a");
  EXPECT_EQ(noted->bytes, 8U);
  EXPECT_EQ(noted->time, kBegin - absl::Seconds(6));

  inner.relay.TakeFromAbove(down.down, kBegin);
  EXPECT_EQ(inner.relay.Take(kBegin).down.size(), 1U);
  EXPECT_TRUE(inner.board->Of(3).Last().has_value());
}

TEST(ActRelayTest, ActsOfRanksOnThisHostAreNotNoted) {
  Relay inner(1);
  inner.relay.TakeFromAbove({{.rank = 0}, {.rank = 1}, {.rank = 2}}, kBegin);
  EXPECT_FALSE(inner.board->Of(0).Last().has_value());
  EXPECT_FALSE(inner.board->Of(1).Last().has_value());
  EXPECT_TRUE(inner.board->Of(2).Last().has_value());
  EXPECT_EQ(inner.relay.Take(kBegin).down.size(), 3U);
}

TEST(ActRelayTest, WithoutABoardActsAreOnlyPassedOn) {
  EventRelay relay({.rank = 1, .peers = Relay::Peers(), .standstill = kStandstill});
  relay.TakeFromAbove({{.rank = 2}}, kBegin);
  EXPECT_EQ(relay.Take(kBegin).down.size(), 1U);
}

}  // namespace
}  // namespace ronda
