#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "bench/report/presentation.h"
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

TEST(RunFigures, AnImplementationOfTwoRunsHasALineForEach) {
  std::vector<RunDocument> runs = SampleRuns();
  runs.push_back(runs[0]);
  runs.back().name = "again";
  const LineChart chart = Find<LineChart>(FiguresOf(runs), "Bandwidth");
  ASSERT_EQ(chart.series.size(), 4u);
  EXPECT_EQ(chart.series[0].name, "ronda communicator (collectives)");
  EXPECT_EQ(chart.series[2].name, "ronda communicator (again)");
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

TEST(RunFigures, NothingToShowIsNoFigure) {
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

TEST(SpeedAgainstPeersTest, WithoutAllreducesThereIsNoFigure) {
  EXPECT_EQ(SpeedAgainstPeers({}).status().code(), absl::StatusCode::kNotFound);
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
  EXPECT_THAT(text, HasSubstr("| step | ronda-bench step --compute 100ms | 2026-11-21T19:30:00Z |"));
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
