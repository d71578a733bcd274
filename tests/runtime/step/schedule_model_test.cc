// SPDX-License-Identifier: Apache-2.0

// Checks the locked schedule with a model, in every interleaving of three ranks and three buckets.
//
// Each rank's position in the schedule is kept by a real LockedSchedule. The model adds a list that begins the
// schedule, and votes and unlock requests, which reach the ranks at any time. The negotiation of the model carries out
// a tensor as soon as all ranks have submitted it. A program submits the three tensors in any order, and again when
// they are complete. It may also submit a tensor that is not in the schedule, and may stop forever at any time.
//
// The tests check two properties. In every reachable state, no rank has carried out a bucket that another rank has seen
// vetoed, and all ranks unlock at the same bucket. In every state in which only the programs can move, all tensors that
// all ranks have submitted are complete, and no rank waits in a schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <iostream>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "runtime/step/locked_schedule.h"

namespace ronda {
namespace {

constexpr int kRanks = 3;
constexpr int kBuckets = 3;  // of one tensor each, with the ids 1 to 3
constexpr int kOutside = 3;  // the bit of the tensor that is not in the schedule

struct RankState {
  uint64_t in_flight : 4 = 0;  // one bit per tensor
  uint64_t submissions : 3 = 0;
  uint64_t outside : 1 = 0;  // the tensor outside has been submitted
  enum Phase : uint64_t { kBefore, kLocked, kUnlocked };
  uint64_t phase : 2 = kBefore;
  uint64_t advanced : 3 = 0;   // buckets carried out
  uint64_t unlocking : 1 = 0;  // wants to unlock
  uint64_t in_bucket : 1 = 0;  // has entered the next bucket; `unlocking` is its vote
  uint64_t knows : 1 = 0;      // knows of a request to unlock

  uint64_t Bits() const {
    uint64_t bits = in_flight;
    const auto add = [&](uint64_t value, int width) { bits = bits << width | value; };
    add(submissions, 3);
    add(outside, 1);
    add(phase, 2);
    add(advanced, 3);
    add(unlocking, 1);
    add(in_bucket, 1);
    add(knows, 1);
    return bits;
  }
};

struct State {
  std::array<RankState, kRanks> ranks;
  bool requested = false;

  // Returns a key for the state. States that differ only in the order of the ranks have the same key, because all ranks
  // follow the same rules.
  uint64_t Key() const {
    std::array<uint64_t, kRanks> bits;
    std::transform(ranks.begin(), ranks.end(), bits.begin(), [](const RankState& rank) { return rank.Bits(); });
    std::sort(bits.begin(), bits.end());
    uint64_t key = requested ? 1 : 0;
    for (uint64_t rank : bits) key = key << 17 | rank;
    return key;
  }
};

// The rules of the model. A test can turn a rule off to show that the rule is needed.
struct Rules {
  bool requests_arrive = true;
  bool waits_time_out = true;  // if they lack tensors themselves
  bool waits_expire = true;    // in a bucket
  uint64_t submissions = 4;    // of the three tensors, per rank; more than one round
};

class ScheduleModel {
 public:
  explicit ScheduleModel(const Rules& rules) : rules_(rules) {}

  void Explore() {
    Visit(State());
    while (!open_.empty()) {
      const State state = open_.front();
      open_.pop_front();
      CheckSafe(state);
      moves_ = 0;
      for (int rank = 0; rank < kRanks; ++rank) LetEngineMove(state, rank);
      Negotiate(state);
      if (moves_ == 0) CheckNothingHangs(state);
      for (int rank = 0; rank < kRanks; ++rank) LetProgramMove(state, rank);
    }
  }

  size_t states() const { return seen_.size(); }
  size_t carried_out() const { return carried_out_; }
  size_t vetoed() const { return vetoed_; }
  size_t unsafe() const { return unsafe_; }
  size_t hanging() const { return hanging_; }

 private:
  void Visit(const State& state) {
    if (seen_.insert(state.Key()).second) open_.push_back(state);
  }

  template <typename Change>
  void Move(const State& state, int rank, Change change) {
    State next = state;
    change(&next, &next.ranks[rank]);
    Visit(next);
    ++moves_;
  }

  // Returns whether the real schedule lets a rank in this state enter a bucket.
  bool MayEnter(const RankState& rank) {
    const uint64_t position = rank.Bits() & ~uint64_t{1};
    const auto known = may_enter_.find(position);
    if (known != may_enter_.end()) return known->second;
    LockedSchedule locked;
    locked.Begin({.number = 1, .buckets = {{1}, {2}, {3}}}, absl::UnixEpoch());
    for (uint64_t bucket = 0; bucket < rank.advanced; ++bucket) {
      locked.Submit(bucket % kBuckets + 1);
      locked.Enter(Ballot::Result::kCarriedOut, absl::UnixEpoch());
    }
    for (int tensor = 0; tensor < kBuckets; ++tensor) {
      if ((rank.in_flight >> tensor & 1) != 0) locked.Submit(tensor + 1);
    }
    if (rank.unlocking) locked.VetoNext();
    return may_enter_.emplace(position, locked.Next().has_value()).first->second;
  }

  static void WantToUnlock(State* state, RankState* rank) {
    rank->unlocking = 1;
    state->requested = true;
  }

  // The engine checks new submissions at once, or after the current bucket if there is one.
  static void Look(State* state, RankState* rank) {
    if (rank->phase == RankState::kLocked && (rank->in_flight >> kOutside & 1) != 0) WantToUnlock(state, rank);
  }

  void LetProgramMove(const State& state, int number) {
    const RankState& rank = state.ranks[number];
    for (int tensor = 0; tensor <= kOutside; ++tensor) {
      const bool outside = tensor == kOutside;
      if ((rank.in_flight >> tensor & 1) != 0 ||
          (outside ? rank.outside == 1 : rank.submissions == rules_.submissions)) {
        continue;
      }
      Move(state, number, [&](State* next, RankState* own) {
        own->in_flight |= 1u << tensor;
        if (outside) {
          own->outside = 1;
        } else {
          ++own->submissions;
        }
        if (!own->in_bucket) Look(next, own);
      });
    }
  }

  void LetEngineMove(const State& state, int number) {
    const RankState& rank = state.ranks[number];
    if (rules_.requests_arrive && state.requested && !rank.knows) {
      Move(state, number, [](State*, RankState* own) { own->knows = 1; });
    }
    if (rank.phase == RankState::kBefore) {
      Move(state, number, [](State* next, RankState* own) {
        own->phase = RankState::kLocked;
        Look(next, own);
      });
    }
    if (rank.phase != RankState::kLocked) return;
    if (rank.in_bucket) return Wait(state, number);
    if (rank.knows && !rank.unlocking) Move(state, number, WantToUnlock);
    const bool may_enter = MayEnter(rank);
    if (may_enter) Move(state, number, [](State*, RankState* own) { own->in_bucket = 1; });
    if (rules_.waits_time_out && !may_enter && rank.in_flight != 0) Move(state, number, WantToUnlock);
  }

  void Wait(const State& state, int number) {
    const uint64_t bucket = state.ranks[number].advanced;
    const bool all_entered = std::all_of(state.ranks.begin(), state.ranks.end(), [&](const RankState& rank) {
      return rank.advanced > bucket ||
             (rank.advanced == bucket && (rank.in_bucket || rank.phase == RankState::kUnlocked));
    });
    if (!all_entered) {
      if (!rules_.waits_expire || state.requested) return;
      return Move(state, number, [](State* next, RankState*) { next->requested = true; });
    }
    const bool veto = std::any_of(state.ranks.begin(), state.ranks.end(), [&](const RankState& rank) {
      return rank.advanced == bucket && (rank.unlocking || rank.phase == RankState::kUnlocked);
    });
    Move(state, number, [&](State* next, RankState* own) {
      own->in_bucket = 0;
      if (veto) {
        ++vetoed_;
        own->phase = RankState::kUnlocked;
        own->unlocking = 0;  // from here on the schedule does not matter to the rank
        own->knows = 1;
        return;
      }
      ++carried_out_;
      if ((own->in_flight >> bucket % kBuckets & 1) == 0) ++unsafe_;  // the rank has nothing to carry out
      own->in_flight &= ~(1u << bucket % kBuckets);
      ++own->advanced;
      Look(next, own);
    });
  }

  // Once all ranks have unlocked, carries out the tensors that all ranks have submitted.
  void Negotiate(const State& state) {
    State next = state;
    for (const RankState& rank : state.ranks) {
      if (rank.phase != RankState::kUnlocked) return;
    }
    const uint64_t ready = ReadyEverywhere(state);
    if (ready == 0) return;
    for (RankState& rank : next.ranks) rank.in_flight &= ~ready;
    Visit(next);
    ++moves_;
  }

  static uint64_t ReadyEverywhere(const State& state) {
    uint64_t ready = ~uint64_t{0};
    for (const RankState& rank : state.ranks) ready &= rank.in_flight;
    return ready;
  }

  void CheckSafe(const State& state) {
    for (const RankState& unlocked : state.ranks) {
      if (unlocked.phase != RankState::kUnlocked) continue;
      // No rank may have carried out a bucket that this rank has seen vetoed, and all ranks that have unlocked must
      // have unlocked at this bucket.
      for (const RankState& other : state.ranks) {
        if (other.advanced > unlocked.advanced) ++unsafe_;
        if (other.phase == RankState::kUnlocked && other.advanced != unlocked.advanced) ++unsafe_;
      }
    }
  }

  void CheckNothingHangs(const State& state) {
    const bool a_rank_waits = std::any_of(state.ranks.begin(), state.ranks.end(), [](const RankState& rank) {
      return rank.phase != RankState::kUnlocked && (rank.in_flight != 0 || rank.in_bucket);
    });
    if (a_rank_waits || ReadyEverywhere(state) != 0) ++hanging_;
  }

  const Rules rules_;
  absl::flat_hash_set<uint64_t> seen_;
  std::deque<State> open_;
  absl::flat_hash_map<uint64_t, bool> may_enter_;
  size_t moves_ = 0;  // moves of engines and of the negotiation, in this state
  size_t carried_out_ = 0;
  size_t vetoed_ = 0;
  size_t unsafe_ = 0;
  size_t hanging_ = 0;
};

TEST(ScheduleModel, AllRanksUnlockAtTheSameBucketAndNothingHangs) {
  ScheduleModel model({});
  model.Explore();
  std::cout << model.states() << " states, " << model.carried_out() << " times a bucket carried out, " << model.vetoed()
            << " times vetoed\n";
  EXPECT_GT(model.states(), 10000u);
  EXPECT_GT(model.carried_out(), 1000u);
  EXPECT_GT(model.vetoed(), 1000u);
  EXPECT_EQ(model.unsafe(), 0u);
  EXPECT_EQ(model.hanging(), 0u);
}

// Without any one of these rules, some state hangs, so each rule is needed. But no state is unsafe.
TEST(ScheduleModel, RequestsAndLimitsAreNeeded) {
  const Rules lacking[] = {{.requests_arrive = false, .submissions = 2},
                           {.waits_time_out = false, .submissions = 2},
                           {.waits_expire = false, .submissions = 2}};
  for (const Rules& rules : lacking) {
    ScheduleModel model(rules);
    model.Explore();
    EXPECT_EQ(model.unsafe(), 0u);
    EXPECT_GT(model.hanging(), 0u);
  }
}

}  // namespace
}  // namespace ronda
