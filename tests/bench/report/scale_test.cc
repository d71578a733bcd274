#include "bench/report/scale.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

std::vector<std::string> Labels(const Scale& scale) {
  std::vector<std::string> labels;
  for (const Scale::Tick& tick : scale.Ticks()) labels.push_back(tick.label);
  return labels;
}

TEST(Scale, LinearBeginsAtZeroAndTicksAreRound) {
  const Scale scale(Axis::kLinear, {3, 58});
  EXPECT_EQ(scale.Place(0), 0);
  EXPECT_EQ(scale.Place(58), 1);
  EXPECT_EQ(Labels(scale), (std::vector<std::string>{"0", "10", "20", "30", "40", "50"}));
}

TEST(Scale, LinearHasRoomForWhatIsBelowZero) {
  const Scale scale(Axis::kLinear, {-2, 8});
  EXPECT_EQ(scale.Place(-2), 0);
  EXPECT_DOUBLE_EQ(scale.Place(0), 0.2);
}

TEST(Scale, LogarithmicIsWidenedToPowers) {
  const Scale scale(Axis::kLogarithmic, {0.3, 40});
  EXPECT_EQ(Labels(scale), (std::vector<std::string>{"0.1", "1", "10", "100"}));
  EXPECT_NEAR(scale.Place(1), 1.0 / 3, 1e-12);
  EXPECT_EQ(scale.Place(0), 0);
  EXPECT_EQ(scale.Place(-5), 0);
}

TEST(Scale, BytesAreLabelledAsPeopleWriteThem) {
  const Scale scale(Axis::kLogarithmicBytes, {1024, 1 << 20});
  EXPECT_EQ(Labels(scale), (std::vector<std::string>{"1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB"}));
}

TEST(Scale, ManyPowersAreThinnedOut) { EXPECT_LE(Scale(Axis::kLogarithmic, {1e-20, 1e20}).Ticks().size(), 13u); }

TEST(Short, HasThreeSignificantDigits) {
  EXPECT_EQ(Short(0.0012345), "0.00123");
  EXPECT_EQ(Short(12.345), "12.3");
  EXPECT_EQ(Short(12345), "12345");
  EXPECT_EQ(Short(12345678), "1.23e+07");
}

TEST(Scale, WithoutNumbersItIsStillAnAxis) {
  for (Axis axis : {Axis::kLinear, Axis::kLogarithmic, Axis::kLogarithmicBytes}) {
    for (const std::vector<double>& numbers :
         {std::vector<double>{}, {0}, {7}, {std::numeric_limits<double>::quiet_NaN()}}) {
      const Scale scale(axis, numbers);
      EXPECT_FALSE(scale.Ticks().empty());
      EXPECT_GE(scale.Place(7), 0);
    }
  }
}

}  // namespace
}  // namespace ronda::bench
