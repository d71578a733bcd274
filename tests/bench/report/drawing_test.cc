// Figures as SVG, and as gnuplot scripts.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "bench/report/gnuplot.h"
#include "bench/report/palette.h"
#include "bench/report/svg.h"

namespace ronda::bench {
namespace {

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

HeatMap Map() {
  return {.id = "map",
          .title = "sweep",
          .x_label = "wire",
          .y_label = "fusion",
          .x_names = {"none", "fp16"},
          .y_names = {"0 B"},
          .values = {{7.5, std::nan("")}}};
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

TEST(Svg, ALineChartHasALineASeriesAndItsName) {
  const std::string svg = SvgOf(Lines());
  EXPECT_EQ(Count(svg, "<polyline"), 2 * 2);  // the legend's included
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

TEST(Svg, AHeatMapNamesItsNumbersAndGaps) {
  const std::string svg = SvgOf(Map());
  EXPECT_THAT(svg, AllOf(HasSubstr(">7.5</text>"), HasSubstr(">-</text>"), HasSubstr(">fp16</text>"),
                         HasSubstr(">0 B</text>")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
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
  EXPECT_EQ(Count(svg, "stroke=\"" + ColorOf(0) + "\" stroke-dasharray=\"9,4\""), 2);
}

TEST(Palette, TheFirst28LinesLookDifferent) {
  std::set<std::pair<std::string, Dash>> looks;
  for (size_t i = 0; i < 28; ++i) looks.emplace(ColorOf(i), DashOf(i));
  EXPECT_EQ(looks.size(), 28u);
  EXPECT_EQ(DashOf(0), Dash::kSolid);
}

TEST(Gnuplot, LinesOfTheSameColorDifferByTheirDashes) {
  const std::string script = GnuplotOf(ManyLines(9), "many.png");
  EXPECT_EQ(Count(script, " dt 1 "), 7);
  EXPECT_EQ(Count(script, " dt 2 "), 2);
}

TEST(Palette, HeatGoesFromTheLeastToTheMost) {
  EXPECT_EQ(HeatOf(1, 1, 3), 0);
  EXPECT_EQ(HeatOf(2, 1, 3), 0.5);
  EXPECT_EQ(HeatOf(2, 2, 2), 0);
  EXPECT_NE(HeatColor(0), HeatColor(1));
  EXPECT_EQ(Extremes(Map()), std::make_pair(7.5, 7.5));
}

TEST(Gnuplot, ScriptsHoldTheirData) {
  const std::string lines = GnuplotOf(Lines(), "out/it's.png");
  EXPECT_THAT(lines, AllOf(HasSubstr("set output 'out/it''s.png'"), HasSubstr("set logscale x\nset logscale y\n"),
                           HasSubstr("$series1 << EOD\n1024 0.5\n4096 2\nEOD\n"), HasSubstr("title 'it''s MPI'")));
  EXPECT_THAT(GnuplotOf(Map(), "map.png"),
              AllOf(HasSubstr("0 0 7.5 7.5 0x222222\n1 0 NaN -"), HasSubstr("with image")));
  EXPECT_THAT(GnuplotOf(Bars(), "bars.png"),
              AllOf(HasSubstr("\"ronda\" 100 0\n\"peer\" 100 50\n"), HasSubstr("$bars using 3:xtic(1)")));
}

}  // namespace
}  // namespace ronda::bench
