// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "bench/report/presentation.h"
#include "runtime/base/version.h"
#include "tests/bench/report/sample_runs.h"

namespace ronda::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Returns the first figure of this kind whose title begins with `title`.
template <typename Kind>
Kind Find(const std::vector<Figure>& figures, const std::string& title) {
  for (const Figure& figure : figures) {
    if (std::holds_alternative<Kind>(figure) && std::get<Kind>(figure).title.rfind(title, 0) == 0) {
      return std::get<Kind>(figure);
    }
  }
  ADD_FAILURE() << "no figure " << title;
  return {};
}

TEST(RunFigures, BandwidthHasALineForEachImplementation) {
  const LineChart chart =
      Find<LineChart>(FiguresOf(SampleRuns()), "Bandwidth: allreduce, float32, 2 ranks (collectives)");
  EXPECT_EQ(chart.id, "bandwidth-allreduce-float32-2-ranks-collectives");
  EXPECT_EQ(chart.x_axis, Axis::kLogarithmicBytes);
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].name, "ronda communicator");
  EXPECT_EQ(chart.series[1].name, "openmpi");
  ASSERT_EQ(chart.series[1].points.size(), 2u);
  EXPECT_EQ(chart.series[1].points[0].first, 1024);
  EXPECT_NEAR(chart.series[1].points[0].second, 1.024 / 5, 1e-6);
}

TEST(RunFigures, AFigureIsOfOneRun) {
  std::vector<RunDocument> runs = SampleRuns();
  runs.push_back(runs[0]);
  runs.back().name = "again";
  for (const std::string name : {"collectives", "again"}) {
    const LineChart chart = Find<LineChart>(FiguresOf(runs), "Bandwidth: allreduce, float32, 2 ranks (" + name + ")");
    ASSERT_EQ(chart.series.size(), 2u);
    EXPECT_EQ(chart.series[0].points.size(), 2u);
  }
}

TEST(RunFigures, AStepIsComputationAndExposedCommunication) {
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

TEST(RunFigures, RunsWithoutRowsToCompareGiveNoFigure) {
  EXPECT_TRUE(FiguresOf({}).empty());
  EXPECT_TRUE(FiguresOf({{.command = "collectives", .rows = {RunRow()}}}).empty());
}

TEST(SpeedAgainstPeersTest, HasOneLineForEachImplementationAndRondaFirst) {
  std::vector<RunDocument> runs = SampleRuns();
  runs.push_back(runs[0]);
  runs.back().name = "again";
  const absl::StatusOr<Figure> figure = SpeedAgainstPeers(runs);
  ASSERT_TRUE(figure.ok()) << figure.status();
  const LineChart& chart = std::get<LineChart>(*figure);
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].name, "Ronda");
  EXPECT_EQ(chart.series[1].name, "Open MPI");
  EXPECT_THAT(chart.series[0].points, ElementsAre(Pair(1024, 0.512), Pair(1048576, ::testing::DoubleNear(17.5, 0.1))));
  EXPECT_THAT(chart.title, HasSubstr("2 ranks, AMD <EPYC>, 2 cores"));
}

TEST(SpeedAgainstPeersTest, LinesAreOfOneRun) {
  std::vector<RunDocument> runs = SampleRuns();
  RunDocument more = runs[0];  // twice as fast, and with another peer
  for (RunRow& row : more.rows) row.numbers["busbw_gbs"] *= 2;
  more.rows.push_back(more.rows.back());
  more.rows.back().texts["contestant"] = "gloo";
  runs.push_back(more);
  const absl::StatusOr<Figure> figure = SpeedAgainstPeers(runs);
  ASSERT_TRUE(figure.ok()) << figure.status();
  const LineChart& chart = std::get<LineChart>(*figure);
  ASSERT_EQ(chart.series.size(), 3u);
  EXPECT_EQ(chart.series[0].points[0].second, more.rows[0].Number("busbw_gbs"));
  EXPECT_EQ(chart.series[1].points[0].second, more.rows[1].Number("busbw_gbs"));
}

TEST(SpeedAgainstPeersTest, WithoutAllreducesThereIsNoFigure) {
  EXPECT_EQ(SpeedAgainstPeers({}).status().code(), absl::StatusCode::kNotFound);
}

TEST(NoiseTest, ARunWhoseCoresHaveMovedIsSpoilt) {
  RunDocument run = SampleRuns().front();
  EXPECT_EQ(NoiseIn(run), "");
  run.core_distance_ns = {55, 83};
  EXPECT_EQ(NoiseIn(run), "spoilt: the distance of the cores has changed from 55 to 83 ns; run it again");
  run.core_distance_ns = {240, 55};
  EXPECT_THAT(NoiseIn(run), HasSubstr("from 240 to 55 ns"));
  run.core_distance_ns = {0, 0};  // of one core, or not measured
  EXPECT_EQ(NoiseIn(run), "");
}

TEST(NoiseTest, ARunBesideOtherProgramsIsSpoilt) {
  RunDocument run = SampleRuns().front();  // two ranks
  run.machine.cores = 2;
  run.busy_cores = {0.1, 0.9};
  EXPECT_EQ(NoiseIn(run), "spoilt: other programs kept 0.9 of 2 cores busy before or after the run; run it again");
  run.machine.cores = 4;
  EXPECT_EQ(NoiseIn(run), "") << "the ranks had cores of their own";
  run.busy_cores = {2.5, 0};
  EXPECT_THAT(NoiseIn(run), HasSubstr("2.5 of 4 cores"));
}

TEST(NoiseTest, ARunWhoseRoundsDifferIsSpoilt) {
  RunDocument run = {.command = "step"};
  const auto add = [&](double p10, double p90) {
    run.rows.emplace_back();
    run.rows.back().numbers = {{"step_ms_p10", p10}, {"step_ms_p90", p90}};
  };
  add(100, 190);
  add(100, 300);
  EXPECT_EQ(NoiseIn(run), "") << "half of the rows";
  add(100, 201);
  EXPECT_THAT(NoiseIn(run), HasSubstr("spoilt: in 2 of 3 rows the slow rounds took more than twice as long"));
  const std::vector<RunDocument> runs = {run};
  EXPECT_THAT(MarkdownOf(runs), HasSubstr("| spoilt: in 2 of 3 rows"));
  EXPECT_THAT(HtmlOf(runs, {}), HasSubstr("<p>spoilt: in 2 of 3 rows"));
}

RunRow SweepRow(double fusion, const std::string& wire, double step_ms) {
  RunRow row;
  row.texts = {{"preset", "resnet50"}, {"contestant", "ronda"}, {"wire", wire}, {"backend", "shm"}, {"lock", "on"}};
  row.numbers = {
      {"ranks", 2}, {"compute_ms", 0}, {"fusion_threshold", fusion}, {"cycle_time_us", 0}, {"step_ms", step_ms}};
  return row;
}

TEST(SweepTablesTest, ShowTheBestAndItsRatioToTheDefault) {
  constexpr double kDefault = 64 << 20;
  RunDocument run = {.name = "sweep", .command = "step"};
  RunRow unlocked = SweepRow(kDefault, "fp16", 1);
  unlocked.texts["lock"] = "off";
  RunRow peer;
  peer.texts = {{"preset", "resnet50"}, {"contestant", "openmpi flat"}};
  run.rows = {SweepRow(kDefault, "none", 12),
              SweepRow(kDefault, "fp16", 10),
              SweepRow(0, "none", 24),
              SweepRow(0, "fp16", 8),
              unlocked,
              peer};
  std::vector<ReportTable> tables = SweepTables({run});
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(
      tables[0].title,
      "fusion x compression, resnet50, 2 ranks, no computation (sweep): ms of a step; best: no fusion, fp16, 1.50x "
      "the speed of the default");
  EXPECT_THAT(tables[0].header, ElementsAre("", "fp32", "fp16"));
  EXPECT_THAT(tables[0].rows, ElementsAre(ElementsAre("no fusion", "24.00, 0.50x", "8.00, 1.50x, best"),
                                          ElementsAre("fusion 64 MiB", "12.00, 1.00x, default", "10.00, 1.20x")));
  EXPECT_EQ(MarkdownOf({run}).rfind("**fusion x compression, ", 0), 0u) << "it is the first table";
  run.core_distance_ns = {50, 250};
  EXPECT_THAT(SweepTables({run})[0].title, HasSubstr("(sweep, spoilt by noise)"));
}

TEST(SweepTablesTest, WithoutTheDefaultThereIsNoRatio) {
  RunDocument run = {.name = "sweep", .command = "step", .rows = {SweepRow(0, "none", 24), SweepRow(0, "fp16", 8)}};
  ASSERT_EQ(SweepTables({run}).size(), 1u);
  EXPECT_THAT(SweepTables({run})[0].title, HasSubstr("best: no fusion, fp16, the run has not measured the default"));
  EXPECT_THAT(SweepTables({run})[0].rows, ElementsAre(ElementsAre("no fusion", "24.00", "8.00, best")));
  run.rows.pop_back();
  EXPECT_TRUE(SweepTables({run}).empty()) << "nothing to choose";
}

// Whether every element that begins in `html` also ends, in the right order.
::testing::AssertionResult IsWellFormed(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return ::testing::AssertionFailure() << "a tag has no end";
    const std::string tag = html.substr(at + 1, end - at - 1);
    if (tag[0] == '!' || tag.back() == '/') continue;
    const std::string name = tag.substr(tag[0] == '/' ? 1 : 0, tag.find_first_of(" >") - (tag[0] == '/' ? 1 : 0));
    if (tag[0] != '/') {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return ::testing::AssertionFailure() << "</" << name << "> in <" << (open.empty() ? "" : open.back()) << ">";
    } else {
      open.pop_back();
    }
  }
  if (open.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "<" << open.back() << "> has no end";
}

TEST(Html, IsWellFormedAndNeedsNothingElse) {
  const std::vector<RunDocument> runs = SampleRuns();
  const std::string html = HtmlOf(runs, FiguresOf(runs));
  EXPECT_TRUE(IsWellFormed(html));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("src=")), Not(HasSubstr("href=")), Not(HasSubstr("url("))));
  EXPECT_THAT(html,
              AllOf(HasSubstr("<svg"), HasSubstr("AMD &lt;EPYC&gt;, 2 cores, 8 GiB, Linux 6.1.0"),
                    HasSubstr("2026-11-21T19:30:00Z"), HasSubstr("<code>ronda-bench step --compute 100ms</code>")));
}

TEST(Markdown, TablesHoldTheFiguresOfEveryCommand) {
  const std::string text = MarkdownOf(SampleRuns());
  EXPECT_THAT(text, HasSubstr("| step | ronda-bench step --compute 100ms | 2026-11-21T19:30:00Z | Ronda " +
                              std::string(kVersion) + ", Open MPI v4.1.4 |"));
  EXPECT_THAT(text, HasSubstr("| 1 MiB | 60.0 us, 17.5 GB/s, 2.00x | 120 us, 8.74 GB/s |"));
  EXPECT_THAT(text, HasSubstr("| ronda fp32 | 102 | 101 - 104 | 2.50 | 0.976 | 102 | 0.0 | 1.25 |"));
  EXPECT_THAT(text, HasSubstr("| openmpi flat | 144 | 142 - 145 | 43.5 | 0.697 |  |  |  |"));
  EXPECT_THAT(text, HasSubstr("| ronda client | 2 | 4 B | 3.00 | 5.25 | 9.00 | 20.0 | 300 |"));
  EXPECT_THAT(text, HasSubstr("| 2 | 3 | 51.0 | 1 |"));
  EXPECT_THAT(text, HasSubstr("| ronda | 2 | 0.081 | 0.080 - 0.090 | 0.110 |"));
  EXPECT_THAT(text, HasSubstr("| 64 | locked | 0.000 | 1.50 | 0 | 0 | 0 | 0 | 0 |"));
}

TEST(Markdown, ResultsReplaceThoseOfThePage) {
  const std::string page = std::string("# Title\n") + kResultsBegin + "\nold\n" + kResultsEnd + "\nrest\n";
  const absl::StatusOr<std::string> once = WithResults(page, "new\n\n");
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(*once, std::string("# Title\n") + kResultsBegin + "\n\nnew\n\n" + kResultsEnd + "\nrest\n");
  EXPECT_EQ(*WithResults(*once, "new\n\n"), *once);
}

TEST(Markdown, APageWithoutLinesForResultsIsLeftAlone) {
  for (const std::string& page :
       {std::string("# Title\n"), std::string(kResultsBegin), std::string(kResultsEnd) + "\n" + kResultsBegin}) {
    EXPECT_EQ(WithResults(page, "new").status().code(), absl::StatusCode::kInvalidArgument) << page;
  }
}

}  // namespace
}  // namespace ronda::bench
