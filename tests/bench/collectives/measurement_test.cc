// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/collectives/collective_case.h"
#include "bench/collectives/implementation.h"
#include "bench/collectives/measurement.h"
#include "client/ronda.hpp"

namespace ronda::bench {
namespace {

TEST(IterationsForTest, FillABlockWithinBounds) {
  const InterleavingOptions options = {.block_time = absl::Milliseconds(20), .max_iterations = 2000};
  EXPECT_EQ(IterationsFor(1e-3, options), 20);
  EXPECT_EQ(IterationsFor(1e-7, options), 2000);
  EXPECT_EQ(IterationsFor(0, options), 2000);
  EXPECT_EQ(IterationsFor(1, options), 2);
}

TEST(TimeInterleavedTest, EveryImplementationHasOneBlockInEveryRound) {
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> alone =
      ProcessGroup::Create({.rank = 0, .size = 1, .job_id = "interleaving-test"});
  ASSERT_TRUE(alone.ok());
  std::vector<std::string> blocks;  // the implementation of each block, in order
  const auto implementation = [&](const char* name) {
    return [&blocks, name](int iterations) {
      if (blocks.empty() || blocks.back() != name) blocks.emplace_back(name);
      return 1e-6 * iterations;
    };
  };
  const InterleavingOptions options = {.rounds = 3, .block_time = absl::Microseconds(20), .max_iterations = 5};
  const std::vector<Timing> timings =
      TimeInterleaved({implementation("a"), implementation("b")}, options, alone->get());
  // Five rounds: one for calibration, one to warm up, and three that are measured.
  EXPECT_EQ(blocks, (std::vector<std::string>{"a", "b", "a", "b", "a", "b", "a", "b", "a", "b"}));
  ASSERT_EQ(timings.size(), 2u);
  for (const Timing& each : timings) {
    ASSERT_EQ(each.microseconds.size(), 3u);
    for (const double microseconds : each.microseconds) EXPECT_NEAR(microseconds, 1, 1e-6);
    EXPECT_EQ(each.iterations, 5);
  }
}

// Users can set the number of iterations and of warm-up iterations, as with -n and -w in nccl-tests.
TEST(TimeInterleavedTest, IterationsAndWarmUpAreTheUsers) {
  const absl::StatusOr<std::unique_ptr<ProcessGroup>> alone =
      ProcessGroup::Create({.rank = 0, .size = 1, .job_id = "iterations-test"});
  ASSERT_TRUE(alone.ok());
  std::vector<int> iterations;  // of each block
  const Block block = [&](int times) {
    iterations.push_back(times);
    return 1e-6 * times;
  };
  const std::vector<Timing> timings =
      TimeInterleaved({block}, {.rounds = 2, .iterations = 20, .warm_up = 5}, alone->get());
  EXPECT_EQ(iterations, (std::vector<int>{5, 20, 20}));
  EXPECT_EQ(timings.front().iterations, 20);
  iterations.clear();
  TimeInterleaved({block}, {.rounds = 1, .iterations = 3, .warm_up = 0}, alone->get());
  EXPECT_EQ(iterations, (std::vector<int>{0, 3}));
}

class ImplementationTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ronda::init();
    if (GetParam() == "client") {
      implementation_ = MakeClient();
      return;
    }
    auto communicator = ConnectCommunicator({.rank = 0, .size = 1, .job_id = "implementations"}, {.suffix = ""});
    ASSERT_TRUE(communicator.ok());
    implementation_ = *std::move(communicator);
  }

  void TearDown() override {
    implementation_ = nullptr;
    ronda::shutdown();
  }

  std::unique_ptr<Implementation> implementation_;
};

TEST_P(ImplementationTest, CarriesOutEveryCase) {
  EXPECT_EQ(implementation_->name(), GetParam());
  EXPECT_EQ(implementation_->kind(), Implementation::Kind::kRonda);
  EXPECT_EQ(implementation_->algorithm(), "");
  const CaseRanges ranges = CaseRanges::Everything({.min_bytes = 100, .max_bytes = 100});
  for (const CollectiveCase& shape : MakeCases(ranges, 1)) {
    const AlignedBytes input(shape.bytes());
    const AlignedBytes other(shape.bytes());
    void* const output = shape.placement == Placement::kInPlace ? input.data() : other.data();
    const absl::StatusOr<bool> is_able = implementation_->Prepare(shape, {input.data(), output});
    ASSERT_TRUE(is_able.ok() && *is_able) << shape.label();
    for (int repetition = 0; repetition < 2; ++repetition) {
      FillOutput(shape, output);
      FillInput(shape, 0, input.data());
      EXPECT_EQ(CountWrong(shape, 0, implementation_->Run()), 0) << shape.label();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, ImplementationTest, testing::Values("communicator", "client"),
                         [](const auto& info) { return info.param; });

constexpr int kRanks = 3;

TEST(LocalRanksTest, RanksThatAreThreadsCarryOutEveryCase) {
  LocalRanks ensemble("inprocess", MakeInProcessRanks(kRanks));
  EXPECT_EQ(ensemble.name(), "inprocess");
  EXPECT_EQ(ensemble.kind(), Implementation::Kind::kRonda);
  CaseRanges ranges = CaseRanges::Everything({.min_bytes = 3000, .max_bytes = 3000});
  ranges.dtypes = {DType::kFloat32, DType::kInt64};
  for (const CollectiveCase& shape : MakeCases(ranges, kRanks)) {
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

// Counts its calls. Writes no output, so every element of its output is wrong.
class IdleImplementation : public Implementation {
 public:
  explicit IdleImplementation(std::atomic<int>* calls) : calls_(*calls) {}

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

TEST(LocalRanksTest, WrongElementsOfAllRanksAreCounted) {
  std::atomic<int> calls = 0;
  std::vector<std::unique_ptr<Implementation>> implementations;
  for (int rank = 0; rank < kRanks; ++rank) implementations.push_back(std::make_unique<IdleImplementation>(&calls));
  LocalRanks ensemble("threads", std::move(implementations));
  const AlignedBytes input(kCase.bytes());
  const AlignedBytes output(kCase.bytes());
  ASSERT_TRUE(*ensemble.Prepare(kCase, {input.data(), output.data()}));
  EXPECT_GE(ensemble.Run(5), 0);
  EXPECT_EQ(calls, 5 * kRanks);
  EXPECT_EQ(ensemble.CountWrong(), 100 * kRanks);
}

TEST(LocalRanksTest, OneRankIsTheCallingThread) {
  std::atomic<int> calls = 0;
  LocalRanks ensemble(std::make_unique<IdleImplementation>(&calls), 1);
  EXPECT_EQ(ensemble.name(), "idle");
  EXPECT_EQ(ensemble.algorithm(), "none");
  EXPECT_EQ(ensemble.kind(), Implementation::Kind::kPeer);
  const AlignedBytes data(kCase.bytes());
  ASSERT_TRUE(*ensemble.Prepare(kCase, {data.data(), data.data()}));
  ensemble.Run(4);
  EXPECT_EQ(calls, 4);
  EXPECT_FALSE(*ensemble.Prepare({.op = OpType::kReduce, .count = 1}, {data.data(), data.data()}));
}

TEST(LocalRanksTest, AProcessWithoutRanksHasNothingToDo) {
  LocalRanks ensemble("inprocess", {});
  const AlignedBytes data(kCase.bytes());
  EXPECT_TRUE(*ensemble.Prepare(kCase, {data.data(), data.data()}));
  ensemble.Clear();
  EXPECT_EQ(ensemble.Run(3), 0);
  EXPECT_EQ(ensemble.CountWrong(), 0);
  EXPECT_EQ(ensemble.algorithm(), "");
}

const CollectiveCase kCompressed = {.wire = WireFormat::kFloat16, .count = 250000, .ranks = 4};

std::vector<CaseOutcome> Outcomes() {
  return {{.implementation = "client", .timing = {.microseconds = {100, 110, 90}, .iterations = 7}},
          {.implementation = "gloo",
           .kind = Implementation::Kind::kPeer,
           .algorithm = "ring",
           .timing = {.microseconds = {300, 300, 300}, .iterations = 2},
           .wrong = 5}};
}

TEST(AlgorithmBandwidthTest, IsDecimalGigabytesASecond) {
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(kCompressed, 100), 10);
  EXPECT_EQ(AlgorithmBandwidth({.op = OpType::kBarrier, .ranks = 2}, 1), 0);
}

TEST(CollectivesTableTest, ALineHasTheColumnsOfItsHeader) {
  const Table table = CollectivesTable({"gloo"});
  const std::string header = table.Header();
  for (const char* title : {"size", "count", "type", "redop", "time", "algbw", "busbw", "#wrong", "gloo"}) {
    EXPECT_NE(header.find(title), std::string::npos) << title << " is not in\n" << header;
  }
  std::string lines;
  for (const ResultRow& row : RowsOf(kCompressed, Outcomes())) lines += table.RowOf(row);
  EXPECT_NE(lines.find("1000000    250000  float32   sum allreduce        in fp16 client"), std::string::npos) << lines;
  EXPECT_NE(lines.find("100.00      92.00     108.00   10.00   15.00      0    3.00\n"), std::string::npos) << lines;
  // A peer's line in the table has no comparison, and shows the peer's own wire format.
  EXPECT_NE(lines.find("in none gloo"), std::string::npos) << lines;
  EXPECT_NE(lines.find("5.00      5\n"), std::string::npos) << lines;
}

TEST(CollectivesTableTest, RowsHoldEveryFigure) {
  const std::vector<ResultRow> rows = RowsOf(kCompressed, Outcomes());
  ASSERT_EQ(rows.size(), 2u);
  const auto value_of = [&](size_t row, const std::string& name) {
    for (const auto& [field, value] : rows[row]) {
      if (field == name) return value;
    }
    return Value(std::string("absent"));
  };
  EXPECT_EQ(value_of(0, "contestant"), Value(std::string("client")));
  EXPECT_EQ(value_of(0, "bytes"), Value(int64_t{1000000}));
  EXPECT_EQ(value_of(0, "median_us"), Value(100.0));
  EXPECT_EQ(value_of(0, "busbw_gbs"), Value(15.0));
  EXPECT_EQ(value_of(0, "ratio_gloo"), Value(3.0));
  EXPECT_EQ(value_of(1, "ratio_gloo"), Value(std::string("absent")));
  EXPECT_EQ(value_of(1, "algorithm"), Value(std::string("ring")));
  EXPECT_EQ(value_of(1, "wrong"), Value(int64_t{5}));
}

TEST(AverageBandwidthsTest, AreOfEachImplementationWithoutBarriers) {
  const auto row = [](const char* implementation, double bandwidth) {
    return ResultRow{{"contestant", implementation}, {"busbw_gbs", bandwidth}};
  };
  EXPECT_EQ(AverageBandwidths({row("client", 1), row("gloo", 0.5), row("client", 4), row("client", 0)}),
            "# Avg bus bandwidth    : 2.500  client\n# Avg bus bandwidth    : 0.500  gloo\n");
  EXPECT_EQ(AverageBandwidths({row("client", 0)}), "");
}

}  // namespace
}  // namespace ronda::bench
