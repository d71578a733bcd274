// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/report/figure.h"

namespace ronda::bench {
namespace {

std::vector<std::string> Labels(const Scale& scale) {
  std::vector<std::string> labels;
  for (const Scale::Tick& tick : scale.Ticks()) labels.push_back(tick.label);
  return labels;
}

TEST(Scale, LinearBeginsAtZeroAndTicksAreRound) {
  const Scale scale(Axis::kLinear, {3, 58});
  EXPECT_EQ(scale.Position(0), 0);
  EXPECT_EQ(scale.Position(58), 1);
  EXPECT_EQ(Labels(scale), (std::vector<std::string>{"0", "10", "20", "30", "40", "50"}));
}

TEST(Scale, LinearHasRoomForWhatIsBelowZero) {
  const Scale scale(Axis::kLinear, {-2, 8});
  EXPECT_EQ(scale.Position(-2), 0);
  EXPECT_DOUBLE_EQ(scale.Position(0), 0.2);
}

TEST(Scale, LogarithmicIsWidenedToPowers) {
  const Scale scale(Axis::kLogarithmic, {0.3, 40});
  EXPECT_EQ(Labels(scale), (std::vector<std::string>{"0.1", "1", "10", "100"}));
  EXPECT_NEAR(scale.Position(1), 1.0 / 3, 1e-12);
  EXPECT_EQ(scale.Position(0), 0);
  EXPECT_EQ(scale.Position(-5), 0);
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
      EXPECT_GE(scale.Position(7), 0);
    }
  }
}

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LineChart Lines() {
  return {.id = "lines",
          .title = "Peers & <Ronda>",
          .x_label = "size",
          .y_label = "GB/s",
          .x_axis = Axis::kLogarithmicBytes,
          .y_axis = Axis::kLogarithmic,
          .series = {{"ronda", {{1024, 1}, {4096, 10}}}, {"it's MPI", {{1024, 0.5}, {4096, 2}}}}};
}

StackedBars Bars() {
  return {.id = "bars",
          .title = "step",
          .value_label = "ms",
          .part_names = {"compute", "exposed"},
          .bars = {{"ronda", {100, -0.5}}, {"peer", {100, 50}}}};
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Svg, ALineChartHasALineForEachSeriesAndItsName) {
  const std::string svg = SvgOf(Lines());
  EXPECT_EQ(Count(svg, "<polyline"), 2 * 2);  // including the legend's
  EXPECT_EQ(Count(svg, "<circle"), 4);
  EXPECT_THAT(svg,
              AllOf(HasSubstr("Peers &amp; &lt;Ronda&gt;"), HasSubstr(">it's MPI</text>"), HasSubstr(">4 KiB</text>")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  // The faster line ends higher up: the upper edge of the drawing is at 34.
  EXPECT_THAT(svg, HasSubstr("830.0,34.0 "));
}

TEST(Svg, AHistogramHasSteps) {
  LineChart chart = Lines();
  chart.style = LineChart::Style::kSteps;
  EXPECT_EQ(Count(SvgOf(chart), "<circle"), 0);
}

TEST(Svg, BarsShowTheirTotal) {
  const std::string svg = SvgOf(Bars());
  EXPECT_THAT(svg, AllOf(HasSubstr(">150</text>"), HasSubstr(">100</text>"), HasSubstr(">exposed</text>")));
  EXPECT_THAT(svg, Not(HasSubstr("width=\"-")));
}

LineChart ManyLines(size_t count) {
  LineChart chart = Lines();
  chart.series.assign(count, chart.series.front());
  return chart;
}

TEST(Svg, LinesOfTheSameColorDifferByTheirDashes) {
  constexpr size_t kColors = 7;
  EXPECT_EQ(Count(SvgOf(ManyLines(kColors)), "stroke-dasharray"), 0);
  const std::string svg = SvgOf(ManyLines(kColors + 2));
  EXPECT_EQ(Count(svg, "stroke-dasharray"), 2 * 2);
  EXPECT_EQ(Count(svg, "stroke-dasharray=\"9,4\""), 2 * 2);
}

}  // namespace
}  // namespace ronda::bench
