// The layers of Ronda as contestants, in a job of one rank; smoke_test has them on several.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/collectives/collective_case.h"
#include "bench/collectives/contestant.h"
#include "bench/collectives/elements.h"
#include "client/ronda.hpp"

namespace ronda::bench {
namespace {

class ContestantTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ronda::init();
    if (GetParam() == "client") {
      contestant_ = MakeClientContestant();
      return;
    }
    auto communicator = ConnectCommunicatorContestant({.rank = 0, .size = 1, .job_id = "contestants"}, {.suffix = ""});
    ASSERT_TRUE(communicator.ok());
    contestant_ = *std::move(communicator);
  }

  void TearDown() override {
    contestant_ = nullptr;
    ronda::shutdown();
  }

  std::unique_ptr<Contestant> contestant_;
};

TEST_P(ContestantTest, CarriesOutEveryCase) {
  EXPECT_EQ(contestant_->name(), GetParam());
  EXPECT_EQ(contestant_->kind(), Contestant::Kind::kRonda);
  EXPECT_EQ(contestant_->algorithm(), "");
  const CaseRanges ranges = {.ops = OpNames(),
                             .min_bytes = 100,
                             .max_bytes = 100,
                             .dtypes = DTypeNames(),
                             .wires = WireNames(),
                             .placements = PlacementNames()};
  for (const CollectiveCase& shape : MakeCases(ranges, 1)) {
    const AlignedBytes input(shape.bytes());
    const AlignedBytes other(shape.bytes());
    void* const output = shape.placement == Placement::kInPlace ? input.data() : other.data();
    const absl::StatusOr<bool> is_able = contestant_->Prepare(shape, {input.data(), output});
    ASSERT_TRUE(is_able.ok() && *is_able) << shape.label();
    for (int repetition = 0; repetition < 2; ++repetition) {
      FillOutput(shape, output);
      FillInput(shape, 0, input.data());
      EXPECT_EQ(CountWrong(shape, 0, contestant_->Run()), 0) << shape.label();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, ContestantTest, testing::Values("communicator", "client"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ronda::bench
