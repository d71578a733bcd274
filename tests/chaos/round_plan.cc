// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/round_plan.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ronda::chaos {
namespace {

constexpr int kMostBatches = 8;
constexpr int kMostOperationsInABatch = 8;
constexpr int kMostLastSteps = 4;
constexpr int kMostStops = 3;
constexpr std::chrono::milliseconds kLatestInjury{40};

std::vector<int> SomeRanks(int size, int count, Random& random) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  random.Shuffle(ranks);
  ranks.resize(static_cast<size_t>(count));
  return ranks;
}

std::vector<std::vector<int>> PlanSets(int size, Random& random) {
  std::vector<std::vector<int>> sets = {SomeRanks(size, size, random)};
  for (int i = random.Below(3); i > 0; --i) sets.push_back(SomeRanks(size, 1 + random.Below(size), random));
  for (std::vector<int>& set : sets) std::sort(set.begin(), set.end());
  return sets;
}

OperationPlan PlanOperation(OperationKind kind, const std::vector<std::vector<int>>& sets, Random& random) {
  OperationPlan plan;
  plan.kind = kind;
  plan.set = random.Below(static_cast<int>(sets.size()));
  plan.members = sets[static_cast<size_t>(plan.set)];
  const int root = random.Below(static_cast<int>(plan.members.size()));
  plan.root = plan.members[static_cast<size_t>(root)];
  plan.receiver = plan.members[(static_cast<size_t>(root) + 1) % plan.members.size()];
  plan.seed = random.Seed();
  return plan;
}

Injury PlanInjury(int size, Random& random) {
  constexpr Injury::Kind kKinds[] = {Injury::Kind::kNone, Injury::Kind::kKill, Injury::Kind::kKill,
                                     Injury::Kind::kExit, Injury::Kind::kStop, Injury::Kind::kStop};
  Injury injury;
  injury.kind = kKinds[random.Below(std::size(kKinds))];
  injury.after = random.UpTo(kLatestInjury);
  std::vector<int> ranks = SomeRanks(size, size, random);
  injury.attacker = ranks.back();
  ranks.pop_back();
  switch (injury.kind) {
    case Injury::Kind::kNone:
      break;
    case Injury::Kind::kKill:
      injury.victims.assign(ranks.begin(), ranks.begin() + 1 + random.Below(2));
      break;
    case Injury::Kind::kExit:
      injury.victims = {ranks.front()};
      break;
    case Injury::Kind::kStop:
      for (int i = 1 + random.Below(kMostStops); i > 0; --i) {
        injury.victims.push_back(ranks[static_cast<size_t>(random.Below(size - 1))]);
      }
      break;
  }
  return injury;
}

}  // namespace

RoundPlan PlanRound(uint64_t seed, int size) {
  Random random(seed);
  RoundPlan plan{.size = size, .sets = PlanSets(size, random), .injury = PlanInjury(size, random)};
  plan.batches.resize(static_cast<size_t>(2 + random.Below(kMostBatches - 1)));
  for (std::vector<OperationPlan>& batch : plan.batches) {
    batch.resize(static_cast<size_t>(1 + random.Below(kMostOperationsInABatch)));
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto kind = static_cast<OperationKind>(random.Below(kAsynchronousKindCount));
      batch[i] = PlanOperation(kind, plan.sets, random);
      // All batches use the same tensor names, with different shapes and for different operations.
      batch[i].name = absl::StrCat("operation ", i);
    }
    const int waiting_kinds = kOperationKindCount - kAsynchronousKindCount;
    const auto kind = static_cast<OperationKind>(kAsynchronousKindCount + random.Below(waiting_kinds));
    plan.in_turn.push_back(PlanOperation(kind, plan.sets, random));
    plan.in_turn.back().name = "in turn";
  }
  for (int rank = 0; rank < size; ++rank) plan.last_steps.push_back(random.Below(kMostLastSteps + 1));
  return plan;
}

std::string Describe(const RoundPlan& plan) {
  const Injury& injury = plan.injury;
  const std::string victims = absl::StrJoin(injury.victims, ", ");
  const std::string after = absl::StrCat(" after ", injury.after.count(), "us");
  std::string text = absl::StrCat(plan.size, " ranks, ", plan.batches.size(), " batches");
  switch (injury.kind) {
    case Injury::Kind::kNone:
      return text;
    case Injury::Kind::kKill:
      return absl::StrCat(text, ", rank ", injury.attacker, " kills ", victims, after);
    case Injury::Kind::kExit:
      return absl::StrCat(text, ", rank ", victims, " exits", after);
    case Injury::Kind::kStop:
      return absl::StrCat(text, ", rank ", injury.attacker, " stops ", victims, after);
  }
  return text;
}

}  // namespace ronda::chaos
