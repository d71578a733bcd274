// SPDX-License-Identifier: Apache-2.0

// All interleavings of three ranks in a schedule of buckets whose votes are open, or known at once. One or more of the
// ranks may want to unlock at any time.
#include "runtime/negotiation/locked_schedule.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

namespace ronda {
namespace {

using Outcome = VoteWindow::Outcome;

constexpr int kRanks = 3;
constexpr uint64_t kSize = 3;
constexpr uint64_t kLastWish = 3;  // after more buckets, no rank begins to want to unlock
constexpr uint64_t kHorizon = 8;   // no rank enters more buckets

struct Rank {
  VoteWindow window{kSize};
  bool wants_to_unlock = false;
  bool is_inside = false;  // is in a bucket whose vote is known once all ranks are there
  bool has_unlocked = false;
  uint32_t carried_out = 0;  // one bit per bucket

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

struct State {
  std::array<Rank, kRanks> ranks;
  std::array<int, kHorizon> entered = {};  // the number of ranks, per bucket
  std::array<int, kHorizon> vetoes = {};

  friend auto operator<=>(const State&, const State&) = default;
};

// Whether a rank that does not want to unlock has its next tensors while earlier votes are open. With kOneByOne it
// waits for those votes, like a program that waits for each result before it submits the next tensor.
enum class Pace { kAhead, kOneByOne };

class Model {
 public:
  // `kinds`: the kinds of the buckets, repeated. 'd' is a bucket on a device, 'h' one on the host.
  Model(std::string kinds, Pace pace) : kinds_(std::move(kinds)), pace_(pace) {}

  // Visits all states, and returns their number.
  size_t Explore() {
    Visit(State());
    while (!pending_.empty()) {
      const State state = *pending_.back();
      pending_.pop_back();
      const size_t before = moves_;
      for (int rank = 0; rank < kRanks; ++rank) Move(state, rank);
      if (moves_ == before) ExpectGoodEnd(state);
    }
    return seen_.size();
  }

 private:
  bool IsOpen(uint64_t bucket) const { return kinds_[bucket % kinds_.size()] == 'd'; }

  void Visit(const State& state) {
    ++moves_;
    const auto [it, is_new] = seen_.insert(state);
    if (is_new) pending_.push_back(&*it);
  }

  static Outcome OutcomeOf(const State& state, uint64_t bucket) {
    return state.vetoes[bucket] > 0 ? Outcome::kVetoed : Outcome::kCarriedOut;
  }

  // Visits all states to which this rank may move next.
  void Move(const State& state, int rank) {
    const Rank& self = state.ranks[rank];
    if (self.has_unlocked) return;
    if (self.is_inside) return ComeOut(state, rank);
    if (self.window.HasToUnlock()) {
      State next = state;
      next.ranks[rank].has_unlocked = true;
      return Visit(next);
    }
    if (!self.wants_to_unlock && self.window.entered() <= kLastWish) {
      State next = state;
      next.ranks[rank].wants_to_unlock = true;
      Visit(next);
    }
    Settle(state, rank);
    Enter(state, rank);
  }

  void Settle(const State& state, int rank) {
    const Rank& self = state.ranks[rank];
    if (!self.window.has_open()) return;
    const uint64_t first = FirstOpen(self);
    if (state.entered[first] < kRanks) return;
    State next = state;
    next.ranks[rank].window.Settle(OutcomeOf(state, first));
    Note(state, first, &next.ranks[rank]);
    Visit(next);
  }

  // The earliest bucket of a device that has not been settled.
  uint64_t FirstOpen(const Rank& self) const {
    VoteWindow rest = self.window;
    uint64_t bucket = self.window.entered();
    while (rest.has_open()) {
      --bucket;
      if (IsOpen(bucket)) rest.Settle(Outcome::kCarriedOut);
    }
    return bucket;
  }

  void Enter(const State& state, int rank) {
    const Rank& self = state.ranks[rank];
    const uint64_t bucket = self.window.entered();
    if (!self.window.MayEnter() || bucket >= kHorizon) return;
    if (!self.wants_to_unlock && pace_ == Pace::kOneByOne && self.window.has_open()) return;
    State next = state;
    ++next.entered[bucket];
    if (self.wants_to_unlock) ++next.vetoes[bucket];
    if (IsOpen(bucket)) {
      next.ranks[rank].window.EnterOpen();
    } else {
      next.ranks[rank].is_inside = true;
    }
    Visit(next);
  }

  void ComeOut(const State& state, int rank) {
    const uint64_t bucket = state.ranks[rank].window.entered();
    if (state.entered[bucket] < kRanks) return;
    State next = state;
    next.ranks[rank].is_inside = false;
    next.ranks[rank].window.Enter(OutcomeOf(state, bucket));
    Note(state, bucket, &next.ranks[rank]);
    Visit(next);
  }

  static void Note(const State& state, uint64_t bucket, Rank* rank) {
    if (OutcomeOf(state, bucket) == Outcome::kVetoed) {
      rank->wants_to_unlock = true;
    } else {
      rank->carried_out |= uint32_t{1} << bucket;
    }
  }

  // Checks a state in which no rank can move any more.
  void ExpectGoodEnd(const State& state) const {
    const Rank& first = state.ranks[0];
    for (const Rank& rank : state.ranks) {
      EXPECT_EQ(rank.has_unlocked, first.has_unlocked) << kinds_;
      EXPECT_EQ(rank.carried_out, first.carried_out) << kinds_;
      EXPECT_EQ(rank.carried_out & (rank.carried_out + 1), 0u) << kinds_ << ": a bucket behind one that was vetoed";
      EXPECT_EQ(rank.window.entered(), first.window.entered()) << kinds_;
      EXPECT_TRUE(rank.has_unlocked || rank.window.entered() == kHorizon)
          << kinds_ << ": stuck in bucket " << rank.window.entered();
    }
  }

  const std::string kinds_;
  const Pace pace_;
  std::set<State> seen_;
  std::vector<const State*> pending_;
  size_t moves_ = 0;
};

class VoteWindowModel : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Buckets, VoteWindowModel, ::testing::Values("d", "h", "dh", "ddh", "dddh", "hdd"),
                         [](const auto& kinds) { return kinds.param; });

TEST_P(VoteWindowModel, RanksCarryOutTheSameAndUnlockAtTheSamePosition) {
  for (const Pace pace : {Pace::kAhead, Pace::kOneByOne}) {
    EXPECT_GT(Model(GetParam(), pace).Explore(), 100u);
    if (HasFailure()) return;
  }
}

TEST(VoteWindow, KnowsTheOutcomeOfABucketBeforeTheWindowIsPastIt) {
  VoteWindow window(2);
  window.EnterOpen();
  EXPECT_TRUE(window.MayEnter());
  window.EnterOpen();
  EXPECT_FALSE(window.MayEnter());
  window.Settle(Outcome::kCarriedOut);
  EXPECT_TRUE(window.MayEnter());
}

TEST(VoteWindow, UnlocksAtTheEndOfTheWindowOrAtAVoteThatIsKnownAtOnce) {
  VoteWindow open(3);
  open.EnterOpen();
  open.Settle(Outcome::kVetoed);
  EXPECT_TRUE(open.is_lost());
  EXPECT_FALSE(open.HasToUnlock());
  open.EnterOpen();
  open.EnterOpen();
  EXPECT_FALSE(open.MayEnter());
  open.Settle(Outcome::kVetoed);
  EXPECT_FALSE(open.HasToUnlock());
  open.Settle(Outcome::kVetoed);
  EXPECT_TRUE(open.HasToUnlock());
  VoteWindow at_once(3);
  at_once.EnterOpen();
  at_once.Enter(Outcome::kVetoed);
  EXPECT_FALSE(at_once.HasToUnlock()) << "a vote is open";
  at_once.Settle(Outcome::kVetoed);
  EXPECT_TRUE(at_once.HasToUnlock());
}

}  // namespace
}  // namespace ronda
