// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/control/tree/control_node.h"
#include "tests/runtime/control/tree/node_network.h"

namespace ronda::testing {
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
  for (RankId rank = 1; rank < 65; ++rank) EXPECT_EQ(ControlTree{}.Parent(rank), 0);
  EXPECT_EQ(ControlTree{}.Parent(65), 1);
  EXPECT_FALSE(HasControlChildren(0, 1));
  EXPECT_TRUE(HasControlChildren(0, 2));
  EXPECT_FALSE(HasControlChildren(1, 65));
  EXPECT_TRUE(HasControlChildren(1, 66));
}

constexpr absl::Duration kStandstill = absl::Seconds(1);
// When a test begins, on the clock of the flight recorder.
constexpr FlightTime kBegin = absl::Hours(1);

// The relay of one rank in a job of four ranks, two per host. Each rank has its own flight recorders.
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

TEST(EventRelayTest, ActThatNothingFollowsTravelsUpOnce) {
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

TEST(EventRelayTest, BusyRankTellsNothing) {
  Relay leaf(3);
  for (int i = 0; i < 10; ++i) {
    Record(leaf, 3, absl::StrCat(i), kBegin + i * kStandstill);
    EXPECT_TRUE(leaf.relay.Take(kBegin + i * kStandstill + kStandstill / 2).up.empty());
  }
}

TEST(EventRelayTest, RankZeroTellsItsOwnToAll) {
  Relay root(0);
  Record(root, 0, "a", kBegin);
  const EventRelay::News news = root.relay.Take(kBegin + kStandstill);
  EXPECT_TRUE(news.up.empty());
  ASSERT_EQ(news.down.size(), 1U);
  EXPECT_EQ(news.down[0].rank, 0);
}

TEST(EventRelayTest, ActsFromBelowGoUpAndComeBackDownGrowingOlder) {
  const RankEvent event = {.rank = 3, .kind = FlightKind::kWaiting, .name = "a", .bytes = 8, .age = absl::Seconds(5)};
  Relay inner(1);
  inner.relay.ReceiveFromChild({event}, kBegin);
  const EventRelay::News up = inner.relay.Take(kBegin + absl::Seconds(1));
  ASSERT_EQ(up.up.size(), 1U);
  EXPECT_TRUE(up.down.empty());
  EXPECT_EQ(up.up[0].age, absl::Seconds(6));

  Relay root(0);
  root.relay.ReceiveFromChild(up.up, kBegin);
  const EventRelay::News down = root.relay.Take(kBegin);
  EXPECT_TRUE(down.up.empty());
  ASSERT_EQ(down.down.size(), 1U);
  const std::optional<FlightEvent> recorded = root.board->Of(3).Last();
  ASSERT_TRUE(recorded.has_value());
  EXPECT_EQ(recorded->kind, FlightKind::kWaiting);
  EXPECT_EQ(recorded->name, "a");
  EXPECT_EQ(recorded->bytes, 8U);
  EXPECT_EQ(recorded->time, kBegin - absl::Seconds(6));

  inner.relay.ReceiveFromParent(down.down, kBegin);
  EXPECT_EQ(inner.relay.Take(kBegin).down.size(), 1U);
  EXPECT_TRUE(inner.board->Of(3).Last().has_value());
}

TEST(EventRelayTest, ActsOfRanksOnThisHostAreNotNoted) {
  Relay inner(1);
  inner.relay.ReceiveFromParent({{.rank = 0}, {.rank = 1}, {.rank = 2}}, kBegin);
  EXPECT_FALSE(inner.board->Of(0).Last().has_value());
  EXPECT_FALSE(inner.board->Of(1).Last().has_value());
  EXPECT_TRUE(inner.board->Of(2).Last().has_value());
  EXPECT_EQ(inner.relay.Take(kBegin).down.size(), 3U);
}

TEST(EventRelayTest, WithoutABoardActsAreOnlyPassedOn) {
  EventRelay relay({.rank = 1, .peers = Relay::Peers(), .standstill = kStandstill});
  relay.ReceiveFromParent({{.rank = 2}}, kBegin);
  EXPECT_EQ(relay.Take(kBegin).down.size(), 1U);
}

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns a seed for a test with random orders. If the test fails, it prints the seed.
unsigned NewSeed() { return std::random_device()(); }
#define TRACE_SEED(seed) SCOPED_TRACE(absl::StrCat("seed ", seed))

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(ControlNodeTest, JobStartsWhenTheLastRankHasConnectedInWhateverOrder) {
  const unsigned seed = NewSeed();
  TRACE_SEED(seed);
  for (const int fan_out : {1, 2, 64}) {
    NodeNetwork network({.size = 70, .fan_out = fan_out, .seed = seed});
    std::vector<RankId> order(69);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), network.random());
    for (const RankId rank : order) {
      network.Deliver();
      for (RankId other = 0; other < 70; ++other) EXPECT_FALSE(network.node(other).started());
      network.Connect(rank);
    }
    network.Deliver();
    for (RankId rank = 0; rank < 70; ++rank) EXPECT_TRUE(network.node(rank).started()) << rank;
  }
}

TEST(ControlNodeTest, RankZeroNamesTheMissingRanks) {
  NodeNetwork network({.size = 7});
  for (const RankId rank : {6, 2, 3}) network.Connect(rank);
  network.Deliver();
  // Rank 3 is connected to its parent, rank 1, but rank 1 is not connected to its own parent.
  const auto late_error = [&](RankId rank) { return Text(network.node(rank).LateError(absl::Seconds(30))); };
  EXPECT_EQ(late_error(0),
            "no control connection within 30s from rank 1 (host host1, pid 101), rank 3 (host host3, pid 103), rank 4 "
            "(host host4, pid 104), rank 5 (host host5, pid 105)");
  EXPECT_EQ(late_error(1), "rank 1 (host host1, pid 101) did not hear from rank 0 (host host0, pid 100) within 30s");
  network.Connect(1);
  network.Deliver();
  EXPECT_EQ(late_error(0),
            "no control connection within 30s from rank 4 (host host4, pid 104), rank 5 (host host5, pid 105)");
  EXPECT_EQ(late_error(1),
            "rank 1 (host host1, pid 101) did not hear from rank 0 that all ranks have connected within 30s");
}

TEST(ControlNodeTest, RankAloneStartsAtOnce) { EXPECT_TRUE(NodeNetwork({.size = 1}).node(0).started()); }

TEST(ControlNodeTest, EqualReportsOfAllTravelAsOne) {
  NodeNetwork network({.size = 21, .fan_out = 4});
  network.ConnectAll();
  const int before = network.frames(1, 0);
  for (RankId rank = 0; rank < 21; ++rank) network.node(rank).Send("step");
  // Rank 1 receives the reports of its children, but does not send its own frames yet.
  for (const RankId child : network.tree().Children(1)) {
    FrameAssembler assembler(kMaxControlFrame);
    assembler.Append(network.node(child).PopPiece(1));
    for (std::string frame; *assembler.Next(&frame);) network.node(1).Receive(child, frame, network.now());
  }
  network.Deliver();
  EXPECT_EQ(network.frames(1, 0), before + 1);
  EXPECT_EQ(network.node(0).TakeInbox().to_coordinator.size(), 21U);
}

// All ranks send messages at random. Each sender's messages arrive in order, and broadcasts arrive in the same order on
// all ranks.
TEST(ControlNodeTest, MessagesArriveInOrderHoweverTheyTravel) {
  const unsigned seed = NewSeed();
  TRACE_SEED(seed);
  NodeNetwork network({.size = 13, .fan_out = 3, .seed = seed});
  network.ConnectAll();
  std::map<RankId, std::string> sent, received;
  std::vector<std::string> broadcasts;
  std::vector<std::vector<std::string>> heard(13);
  const auto receive = [&](RankId rank) {
    ControlPlane::Inbox inbox = network.node(rank).TakeInbox();
    for (const ControlMessage& message : inbox.to_coordinator) received[message.from] += message.payload;
    for (std::string& message : inbox.broadcasts) heard[rank].push_back(std::move(message));
  };
  for (int i = 0; i < 3000; ++i) {
    const RankId rank = static_cast<RankId>(network.random()() % 13);
    const std::string payload(1, static_cast<char>('a' + network.random()() % 4));
    network.node(rank).Send(payload);
    sent[rank] += payload;
    if (network.random()() % 4 == 0) network.node(0).Broadcast(broadcasts.emplace_back(absl::StrCat(i)));
    for (unsigned pieces = network.random()() % 3; pieces > 0; --pieces) network.DeliverOne();
    receive(static_cast<RankId>(network.random()() % 13));
  }
  network.Deliver();
  for (RankId rank = 0; rank < 13; ++rank) receive(rank);
  EXPECT_EQ(received, sent);
  for (const std::vector<std::string>& of_rank : heard) EXPECT_EQ(of_rank, broadcasts);
}

TEST(ControlNodeTest, HighestUnlockRequestReachesAllFromAnywhere) {
  NodeNetwork network({.size = 9});
  network.ConnectAll();
  network.node(8).RequestUnlock(2);
  network.node(3).RequestUnlock(7);
  network.node(5).RequestUnlock(4);
  network.Deliver();
  for (RankId rank = 0; rank < 9; ++rank) EXPECT_EQ(network.node(rank).TakeInbox().unlock_requested, 7U) << rank;
}

TEST(ControlNodeTest, OfManyFailuresAllRanksTakeTheSame) {
  for (int round = 0; round < 50; ++round) {
    const unsigned seed = NewSeed();
    TRACE_SEED(seed);
    NodeNetwork network({.size = 15, .seed = seed});
    network.ConnectAll();
    for (RankId rank = 14; rank >= 0; --rank) {
      network.node(rank).Propose(absl::InternalError(absl::StrCat("failure of ", rank)));
      network.DeliverOne();
    }
    network.Deliver();
    EXPECT_FALSE(network.node(0).failure().ok());
    for (RankId rank = 0; rank < 15; ++rank) EXPECT_EQ(network.node(rank).failure(), network.node(0).failure());
  }
}

TEST(ControlNodeTest, FailureOvertakesWhatHasNotBegun) {
  NodeNetwork network({.size = 2});
  network.ConnectAll();
  for (int i = 0; i < 5; ++i) network.node(0).Broadcast(std::string(1 << 20, 'x'));
  network.node(0).Propose(absl::InternalError("over"));
  int pieces = 0;
  while (network.DeliverOne()) ++pieces;
  EXPECT_EQ(network.node(1).failure(), absl::InternalError("over"));
  EXPECT_LE(pieces, 2);
}

TEST(ControlNodeTest, ProposedFailureOvertakesReports) {
  NodeNetwork network({.size = 2});
  network.ConnectAll();
  for (int i = 0; i < 5; ++i) network.node(1).Send(absl::StrCat(i, std::string(2 << 20, 'x')));
  network.node(1).Propose(absl::InternalError("over"));
  int pieces = 0;
  while (network.DeliverOne()) ++pieces;
  EXPECT_EQ(network.node(1).failure(), absl::InternalError("over"));
  EXPECT_LE(pieces, 2);
}

TEST(ControlNodeTest, ReportsAfterAFailureAreDropped) {
  NodeNetwork network({.size = 2});
  network.ConnectAll();
  network.node(1).Send("report");
  network.node(0).Propose(absl::InternalError("over"));
  network.Deliver();
  EXPECT_THAT(network.node(0).TakeInbox().to_coordinator, IsEmpty());
}

// Rank 1 has the children 3 and 4, rank 2 has 5 and 6.
TEST(ControlNodeTest, EndOfAnyRankIsTheSameFailureEverywhere) {
  for (const RankId gone : {0, 1, 3}) {
    NodeNetwork network({.size = 7});
    network.ConnectAll();
    for (const RankId child : network.tree().Children(gone)) network.Cut(child);
    if (gone > 0) network.Cut(gone);
    network.Deliver();
    for (RankId rank = 0; rank < 7; ++rank) {
      if (rank == gone) continue;
      EXPECT_EQ(network.node(rank).failure(),
                absl::UnavailableError(absl::StrCat("rank ", gone, " (host host", gone, ", pid ", 100 + gone,
                                                    ") is gone: its connection closed")))
          << rank;
    }
  }
}

TEST(ControlNodeTest, AnnouncedExitChangesNothingUntilTheStreamEnds) {
  for (const RankId leaving : {0, 1, 3}) {
    NodeNetwork network({.size = 7});
    network.ConnectAll();
    network.node(leaving).AnnounceExit();
    network.Deliver();
    for (RankId rank = 0; rank < 7; ++rank) EXPECT_EQ(network.node(rank).failure(), absl::OkStatus());
    for (const RankId child : network.tree().Children(leaving)) network.Cut(child);
    if (leaving > 0) network.Cut(leaving);
    network.Deliver();
    for (RankId rank = 0; rank < 7; ++rank) {
      if (rank == leaving) continue;
      EXPECT_EQ(Text(network.node(rank).failure()), absl::StrCat("rank ", leaving, " (host host", leaving, ", pid ",
                                                                 100 + leaving, ") has ended without ronda_shutdown()"))
          << rank;
    }
  }
}

TEST(ControlNodeTest, ExitAfterADepartureIsNoFailure) {
  NodeNetwork network({.size = 2});
  network.ConnectAll();
  network.node(1).Depart();
  network.node(1).AnnounceExit();
  network.Deliver();
  network.Cut(1);
  EXPECT_EQ(network.node(0).failure(), absl::OkStatus());
}

TEST(ControlNodeTest, SilenceIsAFailureAfterTheTimeoutAndNotBefore) {
  NodeNetwork network({.size = 7});
  network.ConnectAll();
  network.Pass(absl::Seconds(30));
  network.Silence(3);
  network.Pass(absl::Seconds(10));
  EXPECT_EQ(network.node(0).failure(), absl::OkStatus());
  network.Pass(absl::Seconds(1));
  for (const RankId rank : {0, 1, 2, 4, 5, 6}) {
    EXPECT_EQ(Text(network.node(rank).failure()),
              "rank 3 (host host3, pid 103) gave no sign of life for 10s (host down or network cut?)");
  }
  EXPECT_EQ(Text(network.node(3).failure()),
            "rank 1 (host host1, pid 101) gave no sign of life for 10s (host down or network cut?)");
}

TEST(ControlNodeTest, InfiniteTimeoutTreatsSilenceAsLife) {
  NodeNetwork network({.size = 2, .heartbeat_timeout = absl::InfiniteDuration()});
  network.ConnectAll();
  network.Silence(1);
  network.Pass(absl::Hours(1));
  EXPECT_EQ(network.node(0).failure(), absl::OkStatus());
}

TEST(ControlNodeTest, RankThatWasStoppedDoesNotBlameTheOthers) {
  NodeNetwork network({.size = 2});
  network.ConnectAll();
  network.Pass(absl::Seconds(3));
  // Rank 1 is stopped. When it continues, its clock ticks before it reads rank 0's heartbeats from its socket.
  network.Pass(absl::Seconds(9), {0});
  const absl::Duration later = network.now() + absl::Seconds(60);
  network.node(1).Tick(later);
  EXPECT_EQ(network.node(1).failure(), absl::OkStatus());
}

TEST(ControlNodeTest, LeavingOnPurposeIsNoFailure) {
  NodeNetwork network({.size = 7});
  network.ConnectAll();
  network.node(3).Depart();
  network.Deliver();
  EXPECT_TRUE(network.node(1).HasDeparted(3));
  network.Cut(3);
  network.Pass(absl::Seconds(60));
  for (RankId rank = 0; rank < 7; ++rank) EXPECT_EQ(network.node(rank).failure(), absl::OkStatus()) << rank;
}

TEST(ControlNodeTest, RankThatHasLeftDoesNotMindWhoGoes) {
  NodeNetwork network({.size = 3});
  network.ConnectAll();
  network.node(0).Depart();
  network.node(0).Lose(1);
  network.Deliver();
  EXPECT_EQ(network.node(0).failure(), absl::OkStatus());
  // Rank 2 cannot ask any other rank which failure was first.
  network.node(2).Propose(absl::InternalError("own"));
  EXPECT_EQ(network.node(2).failure(), absl::InternalError("own"));
}

TEST(ControlNodeTest, RankThatJoinsAFailedJobIsTold) {
  NodeNetwork network({.size = 3});
  network.node(0).Propose(absl::InternalError("over"));
  network.Connect(1);
  network.Deliver();
  EXPECT_EQ(network.node(1).failure(), absl::InternalError("over"));
}

// Returns the failure of rank `to` after it has received `frame` from rank `from`, in a job of 7 ranks.
absl::Status FailureAfter(RankId from, RankId to, const std::string& frame) {
  NodeNetwork network({.size = 7});
  network.ConnectAll();
  network.node(to).Receive(from, frame, network.now());
  network.Deliver();
  if (from > to) {
    EXPECT_EQ(network.node(to).failure(), network.node(0).failure());
  }
  return network.node(to).failure();
}

TEST(ControlNodeTest, DamageIsTheJobsFailureAndNamesWhoSentIt) {
  const absl::Status damaged = FailureAfter(3, 1, "\xff\xff");
  EXPECT_EQ(damaged.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Text(damaged), HasSubstr("rank 3 (host host3, pid 103) has sent a control message that is none"));
  EXPECT_THAT(Text(FailureAfter(1, 3, "")), HasSubstr("rank 1 (host host1, pid 101)"));
}

TEST(ControlNodeTest, FramesThatGoTheWrongWayAreDamage) {
  for (const ControlFrame& frame :
       {ControlFrame(StartFrame{}), ControlFrame(BroadcastFrame{}), ControlFrame(ArrivalFrame{.ranks = {5}}),
        ControlFrame(ReportsFrame{.reports = {{.ranks = {3, 5}}}})}) {
    EXPECT_EQ(FailureAfter(3, 1, Encode(frame)).code(), absl::StatusCode::kInternal) << frame.index();
  }
  for (const ControlFrame& frame :
       {ControlFrame(ArrivalFrame{.ranks = {3}}), ControlFrame(ReportsFrame{.reports = {{.ranks = {3}}}})}) {
    EXPECT_EQ(FailureAfter(1, 3, Encode(frame)).code(), absl::StatusCode::kInternal) << frame.index();
  }
}

TEST(ControlNodeTest, LastActsOfRanksThatStandStillReachEverybody) {
  std::vector<std::shared_ptr<FlightBoard>> boards;
  NodeNetwork network({.size = 7, .adapt = [&](ControlNode::Options& options) {
                         options.flights = boards.emplace_back(std::make_shared<FlightBoard>(7));
                       }});
  network.ConnectAll();
  const FlightTime recorded = network.now();
  boards[6]->Of(6).Record(FlightKind::kWaiting, OpType::kAllreduce, "x", 4, recorded);
  network.Pass(absl::Seconds(5));  // a second per link, of which two go up and two go down
  for (RankId rank = 0; rank < 7; ++rank) {
    const std::optional<FlightEvent> last = boards[rank]->Of(6).Last();
    ASSERT_TRUE(last.has_value()) << rank;
    EXPECT_EQ(last->name, "x");
    EXPECT_EQ(last->time, recorded) << rank;
  }
}

}  // namespace

}  // namespace ronda::testing
