#include "bench/report/run_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "tests/bench/report/sample_runs.h"

namespace ronda::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// The first figure of this kind whose title begins so.
template <typename Kind>
Kind Find(const std::vector<Figure>& figures, const std::string& title) {
  for (const Figure& figure : figures) {
    if (std::holds_alternative<Kind>(figure) && TitleOf(figure).rfind(title, 0) == 0) return std::get<Kind>(figure);
  }
  ADD_FAILURE() << "no figure " << title;
  return {};
}

TEST(RunFigures, BandwidthHasALineAContestant) {
  const LineChart chart = Find<LineChart>(FiguresOf(SampleRuns()), "Bandwidth: allreduce, float32, 2 ranks");
  EXPECT_EQ(chart.id, "bandwidth-allreduce-float32-2-ranks");
  EXPECT_EQ(chart.x_axis, Axis::kLogarithmicBytes);
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].name, "ronda communicator");
  EXPECT_EQ(chart.series[1].name, "openmpi");
  ASSERT_EQ(chart.series[1].points.size(), 2u);
  EXPECT_EQ(chart.series[1].points[0].first, 1024);
  EXPECT_NEAR(chart.series[1].points[0].second, 1.024 / 5, 1e-6);
}

TEST(RunFigures, AContestantOfTwoRunsHasALineEach) {
  std::vector<RunDocument> runs = SampleRuns();
  runs.push_back(runs[0]);
  runs.back().name = "again";
  const LineChart chart = Find<LineChart>(FiguresOf(runs), "Bandwidth");
  ASSERT_EQ(chart.series.size(), 4u);
  EXPECT_EQ(chart.series[0].name, "ronda communicator (collectives)");
  EXPECT_EQ(chart.series[2].name, "ronda communicator (again)");
}

TEST(RunFigures, ASweepIsAHeatMapWithGapsWhereNothingWasMeasured) {
  const HeatMap map = Find<HeatMap>(FiguresOf(SampleRuns()), "Step time, ms: resnet50, 2 ranks");
  EXPECT_THAT(map.x_names, ElementsAre("none", "fp16"));
  EXPECT_THAT(map.y_names, ElementsAre("no fusion", "64 MiB"));
  EXPECT_EQ(map.values[0][0], 117);
  EXPECT_TRUE(std::isnan(map.values[0][1]));
  EXPECT_EQ(map.values[1][1], 104);
}

TEST(RunFigures, AStepIsComputationAndWhatCommunicationAdds) {
  const StackedBars bars = Find<StackedBars>(FiguresOf(SampleRuns()), "Step: resnet50");
  EXPECT_THAT(bars.part_names, ElementsAre("compute", "exposed communication"));
  ASSERT_EQ(bars.bars.size(), 3u);
  EXPECT_EQ(bars.bars[0].name, "ronda fp32");
  EXPECT_EQ(bars.bars[1].name, "ronda fp16");
  EXPECT_EQ(bars.bars[2].name, "openmpi flat");
  EXPECT_THAT(bars.bars[2].parts, ElementsAre(100, 43.5));
}

TEST(RunFigures, LatencyIsAHistogramInShares) {
  const LineChart chart = Find<LineChart>(FiguresOf(SampleRuns()), "Latency");
  EXPECT_EQ(chart.style, LineChart::Style::kSteps);
  ASSERT_EQ(chart.series.size(), 1u);
  EXPECT_THAT(chart.series[0].points, ElementsAre(Pair(4, 10), Pair(5, 70), Pair(6, 15), Pair(8, 5)));
}

TEST(RunFigures, NothingToShowIsNoFigure) {
  EXPECT_TRUE(FiguresOf({}).empty());
  EXPECT_TRUE(FiguresOf({{.command = "collectives", .rows = {RunRow()}}}).empty());
}

}  // namespace
}  // namespace ronda::bench
