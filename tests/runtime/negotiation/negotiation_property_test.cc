// Drives N reporters and a negotiator through random orders, delays and subsets, with every message delivered late by a
// random amount, and compares with a trivial model: the k-th submission of a name on one rank meets the k-th on all
// others.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/negotiation/codec.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/reporter.h"

namespace ronda {
namespace {

struct World {
  int ranks;
  int names;
  size_t cache_capacity;
  uint32_t seed;
};

void PrintTo(const World& world, std::ostream* out) {
  *out << world.ranks << " ranks, " << world.names << " names, cache of " << world.cache_capacity << ", seed "
       << world.seed;
}

enum class Outcome { kDone, kMismatch };
using Completion = std::tuple<std::string, int, Outcome>;  // name, generation, outcome

class Simulation {
 public:
  explicit Simulation(const World& world)
      : world_(world),
        random_(world.seed),
        negotiator_({.world_size = world.ranks, .cache_capacity = world.cache_capacity, .fusion = {.threshold = 64}}),
        settings_(JobSettings{.cache_capacity = world.cache_capacity}),
        up_(world.ranks) {
    for (RankId rank = 0; rank < world.ranks; ++rank) {
      ranks_.emplace_back(Reporter({.rank = rank, .world_size = world.ranks}));
    }
  }

  void Run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      const RankId rank = Random(world_.ranks);
      switch (Random(5)) {
        case 0:
          SubmitSome(rank);
          break;
        case 1:
          SendReport(rank);
          break;
        case 2:
          TakeReport(rank);
          break;
        case 3:
          Broadcast();
          break;
        case 4:
          ApplyList(rank);
          break;
      }
    }
    Drain();
  }

  void Check() const {
    for (RankId rank = 1; rank < world_.ranks; ++rank) EXPECT_EQ(ranks_[rank].completions, ranks_[0].completions);
    std::map<std::string, int> completed;
    for (const auto& [name, generation, outcome] : ranks_[0].completions) {
      EXPECT_EQ(generation, completed[name]++) << name << " completed out of turn";
      EXPECT_EQ(outcome, Expected(name, generation)) << name << " generation " << generation;
    }
    for (int i = 0; i < world_.names; ++i) {
      const std::string name = Name(i);
      int everywhere = ranks_[0].Submitted(name);
      for (const Rank& rank : ranks_) everywhere = std::min(everywhere, rank.Submitted(name));
      EXPECT_EQ(completed[name], everywhere) << name << ": what every rank submitted, and nothing else, completes";
    }
    EXPECT_FALSE(ranks_[0].completions.empty());
  }

 private:
  struct Rank {
    explicit Rank(Reporter reporter) : reporter(std::move(reporter)) {}

    int Submitted(const std::string& name) const {
      const auto it = submitted.find(name);
      return it == submitted.end() ? 0 : it->second;
    }

    Reporter reporter;
    std::deque<std::string> inbox;
    std::map<std::string, int> submitted;  // generations of each name
    std::set<std::string> in_flight;
    std::vector<Completion> completions;
  };

  int Random(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }

  static std::string Name(int i) { return "tensor" + std::to_string(i); }

  // A function of its arguments, so that ranks agree without talking: every fifth generation is a mismatch.
  Outcome Expected(const std::string& name, int generation) const {
    return world_.ranks > 1 && (generation + name.back()) % 5 == 0 ? Outcome::kMismatch : Outcome::kDone;
  }

  // Shapes change every third generation; every fourth name is an allgather with rank-dependent first dimensions.
  TensorRequest Request(const std::string& name, int generation, RankId rank) const {
    TensorRequest request = {.name = name, .shape = {2, 1 + generation / 3 % 2}};
    if (name.back() % 4 == 0) {
      request.op = OpType::kAllgather;
      request.shape[0] = rank;
    }
    if (Expected(name, generation) == Outcome::kMismatch && rank == generation % world_.ranks) request.shape[1] += 10;
    return request;
  }

  void SubmitSome(RankId id) {
    Rank& rank = ranks_[id];
    for (int i = Random(4); i >= 0; --i) {
      const std::string name = Name(Random(world_.names));
      if (!rank.in_flight.insert(name).second) continue;
      rank.reporter.Submit(Request(name, rank.submitted[name]++, id));
    }
  }

  void SendReport(RankId rank) {
    if (ranks_[rank].reporter.has_news()) up_[rank].push_back(Encode(ranks_[rank].reporter.TakeReport()));
  }

  void TakeReport(RankId rank) {
    if (up_[rank].empty()) return;
    const auto report = DecodeRankReport(up_[rank].front());
    up_[rank].pop_front();
    ASSERT_TRUE(report.ok()) << report.status();
    const absl::Status added = negotiator_.Add(rank, *report, absl::UnixEpoch());
    ASSERT_TRUE(added.ok()) << added;
  }

  void Broadcast() {
    ResponseList list = negotiator_.TakeResponses();
    if (list.empty()) return;
    list.settings = std::exchange(settings_, std::nullopt);
    for (Rank& rank : ranks_) rank.inbox.push_back(Encode(list));
  }

  void ApplyList(RankId id) {
    Rank& rank = ranks_[id];
    if (rank.inbox.empty()) return;
    const auto list = DecodeResponseList(rank.inbox.front());
    rank.inbox.pop_front();
    ASSERT_TRUE(list.ok()) << list.status();
    const auto work = rank.reporter.Apply(*list);
    ASSERT_TRUE(work.ok()) << work.status();
    for (const TensorError& error : work->errors) Complete(&rank, error.name, Outcome::kMismatch);
    for (const auto& bucket : work->buckets) {
      for (const auto& response : bucket) {
        Complete(&rank, response->request.name, Outcome::kDone);
        EXPECT_EQ(RequestOf(*response, id),
                  Request(response->request.name, rank.Submitted(response->request.name) - 1, id));
      }
    }
  }

  void Complete(Rank* rank, const std::string& name, Outcome outcome) {
    ASSERT_EQ(rank->in_flight.erase(name), 1u) << name << " completes without having been submitted";
    rank->completions.emplace_back(name, rank->submitted[name] - 1, outcome);
  }

  // Delivers everything that is on its way, but submits nothing new.
  void Drain() {
    bool busy = true;
    while (busy && !::testing::Test::HasFatalFailure()) {
      busy = false;
      for (RankId rank = 0; rank < world_.ranks; ++rank) {
        SendReport(rank);
        busy |= !up_[rank].empty();
        while (!up_[rank].empty()) TakeReport(rank);
      }
      Broadcast();
      for (RankId rank = 0; rank < world_.ranks; ++rank) {
        busy |= !ranks_[rank].inbox.empty();
        while (!ranks_[rank].inbox.empty()) ApplyList(rank);
      }
    }
  }

  const World world_;
  std::mt19937 random_;
  Negotiator negotiator_;
  std::optional<JobSettings> settings_;  // not yet sent
  std::vector<Rank> ranks_;
  std::vector<std::deque<std::string>> up_;  // reports under way, by rank
};

class NegotiationProperty : public ::testing::TestWithParam<World> {};

TEST_P(NegotiationProperty, WhatAllRanksSubmittedCompletesOnceInOneOrderAndNothingElseDoes) {
  Simulation simulation(GetParam());
  simulation.Run(20000);
  simulation.Check();
}

std::vector<World> Worlds() {
  std::vector<World> worlds;
  uint32_t seed = 1;
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (int names : {1, 4, 12}) {
      for (size_t capacity : {0, 1, 3, 64}) worlds.push_back({ranks, names, capacity, seed++});
    }
  }
  return worlds;
}

INSTANTIATE_TEST_SUITE_P(RandomWorlds, NegotiationProperty, ::testing::ValuesIn(Worlds()));

}  // namespace
}  // namespace ronda
