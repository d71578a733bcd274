#include "runtime/tuning/tuning_space.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;

constexpr TunedSettings kDefaults = {
    .fusion_threshold = size_t{64} << 20, .min_bucket_bytes = size_t{1} << 20, .chunk_bytes = 0};

TuningPoint Defaults(const TuningSpace& space) { return TuningPoint(space.grid().size(), 0); }

TEST(TuningSpaceTest, ItsFirstPointIsTheDefaults) {
  const TunedSettings odd = {
      .fusion_threshold = 12345, .min_bucket_bytes = 77, .chunk_bytes = 4096, .cycle_time = absl::Nanoseconds(1234567)};
  for (const TunedSettings& defaults : {kDefaults, odd}) {
    const TuningSpace space(defaults);
    EXPECT_EQ(space.At(Defaults(space)), defaults);
  }
}

TEST(TuningSpaceTest, EveryDimensionOffersAChoiceAndNoneTwice) {
  const TuningSpace space(kDefaults);
  EXPECT_THAT(space.grid(), Each(Gt(1u)));
  for (size_t d = 0; d < space.grid().size(); ++d) {
    std::set<std::string> seen;
    for (size_t value = 0; value < space.grid()[d]; ++value) {
      TuningPoint point = Defaults(space);
      point[d] = value;
      EXPECT_TRUE(seen.insert(Describe(space.At(point))).second) << Describe(space.At(point));
    }
  }
}

TEST(TuningSpaceTest, OwnDefaultsAreWithinReachOfOtherOnes) {
  const TuningSpace space(
      {.fusion_threshold = 1, .min_bucket_bytes = 1, .chunk_bytes = 1, .cycle_time = absl::Hours(1)});
  std::set<std::string> reached;
  TuningPoint point = Defaults(space);
  for (point[0] = 0; point[0] < space.grid()[0]; ++point[0]) {
    for (point[1] = 0; point[1] < space.grid()[1]; ++point[1]) {
      for (point[2] = 0; point[2] < space.grid()[2]; ++point[2]) {
        for (point[3] = 0; point[3] < space.grid()[3]; ++point[3]) reached.insert(Describe(space.At(point)));
      }
    }
  }
  EXPECT_TRUE(reached.contains(Describe(kDefaults)));
}

TEST(TuningSpaceTest, FusionIsNeverSwitchedOff) {
  const TuningSpace space(kDefaults);
  TuningPoint point = Defaults(space);
  for (point[0] = 0; point[0] < space.grid()[0]; ++point[0]) EXPECT_GT(space.At(point).fusion_threshold, 0u);
}

TEST(TuningSpaceTest, SettingsAreDescribedWithTheirUnits) {
  TunedSettings settings = kDefaults;
  settings.cycle_time = absl::Microseconds(200);
  EXPECT_THAT(Describe(settings), AllOf(HasSubstr("fusion threshold 67108864 bytes"), HasSubstr("own size"),
                                        HasSubstr("cycle time 200us")));
  settings.chunk_bytes = 4096;
  EXPECT_THAT(Describe(settings), HasSubstr("chunks of 4096 bytes"));
}

}  // namespace
}  // namespace ronda
