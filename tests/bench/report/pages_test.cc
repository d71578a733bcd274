#include "bench/report/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/report/run_figures.h"
#include "tests/bench/report/sample_runs.h"

namespace ronda::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(text, HasSubstr("| ronda fp32 | 102 | 101 - 109 | 2.50 | 0.976 | 102 | 0.0 | 1.25 |"));
  EXPECT_THAT(text, HasSubstr("| openmpi flat | 144 | 142 - 145 | 43.5 | 0.697 |  |  |  |"));
  EXPECT_THAT(text, HasSubstr("| ronda client | 2 | 4 B | 3.00 | 5.25 | 9.00 | 20.0 | 300 |"));
  EXPECT_THAT(text, HasSubstr("| 2 | 3 | 51.0 | 1 |"));
  EXPECT_THAT(text, HasSubstr("| rondarun | 2 | 0.081 | 0.080 - 0.090 | 0.110 |"));
  EXPECT_THAT(text, HasSubstr("| 64 | locked | 0.000 | 1.50 | 0 | 0 | 0 | 0 | 0 |"));
}

TEST(Markdown, ResultsReplaceThoseOfThePage) {
  const std::string page = std::string("# Title\n") + kResultsBegin + "\nold\n" + kResultsEnd + "\nrest\n";
  const absl::StatusOr<std::string> once = WithResults(page, "new\n\n");
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(*once, std::string("# Title\n") + kResultsBegin + "\n\nnew\n\n" + kResultsEnd + "\nrest\n");
  EXPECT_EQ(*WithResults(*once, "new\n\n"), *once);
}

TEST(Markdown, APageWithoutThePlaceForResultsIsLeftAlone) {
  for (const std::string& page :
       {std::string("# Title\n"), std::string(kResultsBegin), std::string(kResultsEnd) + "\n" + kResultsBegin}) {
    EXPECT_EQ(WithResults(page, "new").status().code(), absl::StatusCode::kInvalidArgument) << page;
  }
}

}  // namespace
}  // namespace ronda::bench
