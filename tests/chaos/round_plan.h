// SPDX-License-Identifier: Apache-2.0

// The plan of a round of a chaos test: the ranks' operations and injuries. It is computed from a seed, so the test and
// every rank know the whole plan.
#ifndef RONDA_TESTS_CHAOS_ROUND_PLAN_H_
#define RONDA_TESTS_CHAOS_ROUND_PLAN_H_

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ronda::chaos {

// A random number generator that gives the same numbers with every C++ standard library. Thread-compatible.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  int Below(int limit) { return static_cast<int>(engine_() % static_cast<uint64_t>(limit)); }
  bool OneIn(int n) { return Below(n) == 0; }
  std::chrono::microseconds UpTo(std::chrono::microseconds limit) {
    return std::chrono::microseconds(Below(static_cast<int>(limit.count()) + 1));
  }
  uint64_t Seed() { return engine_(); }

  template <class T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[static_cast<size_t>(Below(i))]);
  }

 private:
  std::mt19937_64 engine_;
};

enum class OperationKind {
  kAllreduce,
  kGroupedAllreduce,
  kReduce,
  kReduceScatter,
  kBroadcast,
  kAllgather,
  kGather,
  kScatter,
  kAlltoall,
  kSendRecv,
  kBroadcastObject,
  kAllgatherObject,
  // In the following kinds, the submitting call also waits for the result.
  kSparseAllreduce,
  kBarrier,
};
inline constexpr int kOperationKindCount = 14;
inline constexpr int kAsynchronousKindCount = 12;  // the kinds before kSparseAllreduce

// One operation. `seed` determines the operation's options and the sizes and contents of its tensors.
struct OperationPlan {
  OperationKind kind = OperationKind::kAllreduce;
  std::string name;
  int set = 0;               // index in RoundPlan::sets
  std::vector<int> members;  // of the process set; ascending
  int root = 0;              // one of the members
  int receiver = 0;          // a member other than the root, if the set has more than one member
  uint64_t seed = 0;
};

struct Injury {
  enum class Kind { kNone, kKill, kExit, kStop };
  Kind kind = Kind::kNone;
  int attacker = 0;          // the rank that sends the signals; not a victim
  std::vector<int> victims;  // kKill: all at once; kStop: one after the other; kExit: one, which exits by itself
  std::chrono::microseconds after{0};
};

struct RoundPlan {
  int size = 1;
  std::vector<std::vector<int>> sets;               // process sets; the first one has all ranks
  std::vector<std::vector<OperationPlan>> batches;  // a batch is in flight as a whole, submitted in any order
  std::vector<OperationPlan> in_turn;               // one after each batch; its submitting call waits
  std::vector<int> last_steps;                      // by rank: the number of allreduces before it joins
  Injury injury;
};

RoundPlan PlanRound(uint64_t seed, int size);

// Returns, for example, "4 ranks, 5 batches, rank 2 kills ranks 0 and 1 after 12300us".
std::string Describe(const RoundPlan& plan);

}  // namespace ronda::chaos

#endif  // RONDA_TESTS_CHAOS_ROUND_PLAN_H_
