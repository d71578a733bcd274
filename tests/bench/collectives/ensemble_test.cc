#include "bench/collectives/ensemble.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ronda::bench {
namespace {

constexpr int kRanks = 3;

const CaseRanges kEverything = {.ops = OpNames(),
                                .min_bytes = 3000,
                                .max_bytes = 3000,
                                .dtypes = {"float32", "int64"},
                                .placements = PlacementNames()};

TEST(EnsembleTest, RanksThatAreThreadsCarryOutEveryCase) {
  Ensemble ensemble("inprocess", MakeInProcessContestants(kRanks));
  EXPECT_EQ(ensemble.name(), "inprocess");
  EXPECT_EQ(ensemble.kind(), Contestant::Kind::kRonda);
  for (const CollectiveCase& shape : MakeCases(kEverything, kRanks)) {
    const AlignedBytes input(shape.bytes());
    const AlignedBytes other(shape.bytes());
    void* const output = shape.placement == Placement::kInPlace ? input.data() : other.data();
    const absl::StatusOr<bool> is_able = ensemble.Prepare(shape, {input.data(), output});
    ASSERT_TRUE(is_able.ok() && *is_able) << shape.label();
    ensemble.Clear();
    EXPECT_GT(ensemble.Run(2), 0) << shape.label();
    EXPECT_EQ(ensemble.CountWrong(), 0) << shape.label();
  }
}

// Counts its calls, and leaves its output as it is: wrong.
class IdleContestant : public Contestant {
 public:
  explicit IdleContestant(std::atomic<int>* calls) : calls_(*calls) {}

  std::string name() const override { return "idle"; }
  Kind kind() const override { return Kind::kPeer; }
  std::string algorithm() const override { return "none"; }
  absl::StatusOr<bool> Prepare(const CollectiveCase& shape, const CaseBuffers& buffers) override {
    output_ = buffers.output;
    return shape.op == OpType::kAllreduce;
  }
  const void* Run() override {
    ++calls_;
    return output_;
  }

 private:
  std::atomic<int>& calls_;
  const void* output_ = nullptr;
};

const CollectiveCase kCase = {.placement = Placement::kOutOfPlace, .count = 100, .ranks = kRanks};

TEST(EnsembleTest, WrongElementsOfAllRanksAreCounted) {
  std::atomic<int> calls = 0;
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (int rank = 0; rank < kRanks; ++rank) contestants.push_back(std::make_unique<IdleContestant>(&calls));
  Ensemble ensemble("threads", std::move(contestants));
  const AlignedBytes input(kCase.bytes());
  const AlignedBytes output(kCase.bytes());
  ASSERT_TRUE(*ensemble.Prepare(kCase, {input.data(), output.data()}));
  EXPECT_GE(ensemble.Run(5), 0);
  EXPECT_EQ(calls, 5 * kRanks);
  EXPECT_EQ(ensemble.CountWrong(), 100 * kRanks);
}

TEST(EnsembleTest, OneRankIsTheCallingThread) {
  std::atomic<int> calls = 0;
  Ensemble ensemble(std::make_unique<IdleContestant>(&calls), 1);
  EXPECT_EQ(ensemble.name(), "idle");
  EXPECT_EQ(ensemble.algorithm(), "none");
  EXPECT_EQ(ensemble.kind(), Contestant::Kind::kPeer);
  const AlignedBytes data(kCase.bytes());
  ASSERT_TRUE(*ensemble.Prepare(kCase, {data.data(), data.data()}));
  ensemble.Run(4);
  EXPECT_EQ(calls, 4);
  EXPECT_FALSE(*ensemble.Prepare({.op = OpType::kReduce, .count = 1}, {data.data(), data.data()}));
}

TEST(EnsembleTest, AProcessWithoutRanksHasNothingToDo) {
  Ensemble ensemble("inprocess", {});
  const AlignedBytes data(kCase.bytes());
  EXPECT_TRUE(*ensemble.Prepare(kCase, {data.data(), data.data()}));
  ensemble.Clear();
  EXPECT_EQ(ensemble.Run(3), 0);
  EXPECT_EQ(ensemble.CountWrong(), 0);
  EXPECT_EQ(ensemble.algorithm(), "");
}

}  // namespace
}  // namespace ronda::bench
