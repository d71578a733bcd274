// SPDX-License-Identifier: Apache-2.0

// All interleavings of two ranks whose trainers run ahead of the device. A trainer makes its stream wait for a result,
// and submits the next tensor, which depends on that result, before the ranks have decided on the first tensor. Either
// rank may want to unlock at any time.
#include "runtime/negotiation/locked_schedule.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace ronda {
namespace {

using Outcome = VoteWindow::Outcome;

constexpr int kRanks = 2;
constexpr uint64_t kWindow = 3;
constexpr uint64_t kTensors = 4;   // tensor i is bucket i while the schedule is locked
constexpr uint64_t kLastWish = 1;  // after more buckets, no rank begins to want to unlock

struct Rank {
  // The trainer on the host. Its stream waits for tensor i - 1 before the point at which tensor i is ready.
  uint64_t submitted = 0;
  uint64_t ordered = 0;  // tensors that the stream waits for
  uint64_t last_awaited = 0;
  std::array<uint64_t, kTensors> behind = {};  // the bucket that each tensor's point may be behind
  // The engine.
  VoteWindow window{kWindow};
  UndecidedBuckets undecided;
  std::array<uint64_t, kTensors> numbers = {};  // each tensor's number in UndecidedBuckets; 0 if not launched ahead
  uint64_t settled = 0;                         // buckets
  bool wants_to_unlock = false;
  bool has_unlocked = false;
  std::array<bool, kTensors> launched = {};  // the handle is complete

  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// A bucket of the schedule on the device. It is carried out once all ranks' streams have come to it.
struct Bucket {
  std::array<bool, kRanks> entered = {};
  std::array<bool, kRanks> approved = {};
  bool is_done = false;

  friend auto operator<=>(const Bucket&, const Bucket&) = default;
};

struct State {
  std::array<Rank, kRanks> ranks;
  std::array<Bucket, kTensors + kWindow> buckets;
  std::array<bool, kTensors> is_carried_out = {};  // on the device: the gate is open
  std::array<bool, kTensors> is_agreed = {};       // the negotiation has given it to the devices

  friend auto operator<=>(const State&, const State&) = default;
};

enum class Rule { kKept, kIgnored };

class Model {
 public:
  explicit Model(Rule rule) : rule_(rule) {}

  // Visits all states. Returns how many of them are ends at which some tensor has not been carried out.
  int CountStuck() {
    Visit(State());
    int stuck = 0;
    while (!pending_.empty()) {
      const State state = *pending_.back();
      pending_.pop_back();
      const size_t before = moves_;
      for (int rank = 0; rank < kRanks; ++rank) MoveHost(state, rank);
      MoveDevice(state);
      Negotiate(state);
      if (moves_ == before && !IsComplete(state)) ++stuck;
    }
    return stuck;
  }
  size_t states() const { return seen_.size(); }

 private:
  void Visit(const State& state) {
    ++moves_;
    const auto [it, is_new] = seen_.insert(state);
    if (is_new) pending_.push_back(&*it);
  }

  template <typename Change>
  void Move(const State& state, int rank, const Change& change) {
    State next = state;
    change(next, next.ranks[rank]);
    Visit(next);
  }

  static bool IsComplete(const State& state) {
    for (const bool done : state.is_carried_out) {
      if (!done) return false;
    }
    return true;
  }

  bool MayGive(const Rank& rank, uint64_t tensor) const {
    return rule_ == Rule::kIgnored || rank.undecided.MayAwait(rank.behind[tensor]);
  }

  static bool IsVetoed(const Bucket& bucket) { return !bucket.approved[0] || !bucket.approved[1]; }

  void MoveHost(const State& state, int rank) {
    const Rank& self = state.ranks[rank];
    // The trainer.
    if (self.submitted < kTensors && self.ordered == self.submitted) {
      Move(state, rank, [](State&, Rank& next) { next.behind[next.submitted++] = next.last_awaited; });
    }
    if (self.ordered < self.submitted && self.launched[self.ordered]) {
      Move(state, rank, [&](State& after, Rank& next) {
        const uint64_t number = next.numbers[next.ordered];
        if (number > 0 && !after.is_carried_out[next.ordered]) next.last_awaited = number;
        ++next.ordered;
      });
    }
    if (self.has_unlocked) return;
    // The engine.
    if (self.window.HasToUnlock()) {
      return Move(state, rank, [](State&, Rank& next) { next.has_unlocked = true; });
    }
    if (!self.wants_to_unlock && self.window.entered() <= kLastWish) {
      Move(state, rank, [](State&, Rank& next) { next.wants_to_unlock = true; });
    }
    if (self.window.has_open() && state.buckets[self.settled].is_done) Settle(state, rank);
    Enter(state, rank);
  }

  void Settle(const State& state, int rank) {
    Move(state, rank, [](State& after, Rank& next) {
      const bool vetoed = IsVetoed(after.buckets[next.settled]);
      next.window.Settle(vetoed ? Outcome::kVetoed : Outcome::kCarriedOut);
      if (vetoed) {
        next.wants_to_unlock = true;
      } else {
        next.undecided.Settle(next.numbers[next.settled]);
      }
      ++next.settled;
    });
  }

  void Enter(const State& state, int rank) {
    const Rank& self = state.ranks[rank];
    const uint64_t bucket = self.window.entered();
    if (!self.window.MayEnter() || bucket >= state.buckets.size()) return;
    const bool approves = !self.wants_to_unlock;
    if (approves && (bucket >= kTensors || bucket >= self.submitted || !MayGive(self, bucket))) return;
    Move(state, rank, [&](State& after, Rank& next) {
      next.window.EnterOpen();
      after.buckets[bucket].entered[rank] = true;
      after.buckets[bucket].approved[rank] = approves;
      if (!approves) return;
      next.numbers[bucket] = next.undecided.Add();
      next.launched[bucket] = true;
    });
  }

  // Whether Ronda's stream on the device gets past the point at which the tensor is ready.
  static bool IsReady(const State& state, uint64_t tensor) { return tensor == 0 || state.is_carried_out[tensor - 1]; }

  // Lets the device do its next work, in order.
  void MoveDevice(const State& state) {
    for (uint64_t at = 0; at < state.buckets.size(); ++at) {
      const Bucket& bucket = state.buckets[at];
      if (bucket.is_done) continue;
      for (int rank = 0; rank < kRanks; ++rank) {
        if (!bucket.entered[rank] || (bucket.approved[rank] && !IsReady(state, at))) return CarryOutAgreed(state, at);
      }
      State next = state;
      next.buckets[at].is_done = true;
      if (!IsVetoed(bucket)) next.is_carried_out[at] = true;
      return Visit(next);
    }
    CarryOutAgreed(state, state.buckets.size());
  }

  // Carries out tensors that the negotiation has given to the devices. On the device they come after all buckets of the
  // schedule, `done` of which are done.
  void CarryOutAgreed(const State& state, uint64_t done) {
    if (!state.ranks[0].has_unlocked || !state.ranks[1].has_unlocked || done < state.ranks[0].window.entered()) return;
    for (uint64_t tensor = 0; tensor < kTensors; ++tensor) {
      if (state.is_carried_out[tensor]) continue;
      if (!state.is_agreed[tensor] || !IsReady(state, tensor)) return;
      State next = state;
      next.is_carried_out[tensor] = true;
      return Visit(next);
    }
  }

  void Negotiate(const State& state) {
    for (uint64_t tensor = 0; tensor < kTensors; ++tensor) {
      if (state.is_carried_out[tensor] || state.is_agreed[tensor]) continue;
      for (const Rank& rank : state.ranks) {
        if (!rank.has_unlocked || tensor >= rank.submitted || !MayGive(rank, tensor)) return;
      }
      State next = state;
      next.is_agreed[tensor] = true;
      for (Rank& rank : next.ranks) {
        if (rank.numbers[tensor] > 0) rank.undecided.Settle(rank.numbers[tensor]);
        rank.launched[tensor] = true;
      }
      return Visit(next);
    }
  }

  const Rule rule_;
  std::set<State> seen_;
  std::vector<const State*> pending_;
  size_t moves_ = 0;
};

TEST(UndecidedBucketsModel, NoStreamIsStuckWhoeverUnlocksWhen) {
  Model model(Rule::kKept);
  EXPECT_EQ(model.CountStuck(), 0);
  EXPECT_GT(model.states(), 1000u);
}

// Shows why the rule is needed.
TEST(UndecidedBucketsModel, StreamsWouldWaitForWhatIsBehindThemOtherwise) {
  EXPECT_GT(Model(Rule::kIgnored).CountStuck(), 0);
}

TEST(UndecidedBuckets, LaterBucketMayBeAwaitedOnceAllEarlierBucketsAreSettled) {
  UndecidedBuckets buckets;
  EXPECT_TRUE(buckets.MayAwait(0));
  const uint64_t first = buckets.Add();
  const uint64_t second = buckets.Add();
  EXPECT_TRUE(buckets.MayAwait(0));
  EXPECT_FALSE(buckets.MayAwait(first));
  buckets.Settle(second);
  EXPECT_FALSE(buckets.MayAwait(second));
  buckets.Settle(first);
  EXPECT_TRUE(buckets.MayAwait(second));
  EXPECT_TRUE(buckets.empty());
  EXPECT_GT(buckets.Add(), second);
}

}  // namespace
}  // namespace ronda
