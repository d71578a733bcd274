#include "runtime/launch/line_splitter.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Lines = std::vector<std::string>;

class LineSplitterTest : public ::testing::Test {
 protected:
  void Feed(absl::string_view bytes) {
    splitter_.Feed(bytes, [this](absl::string_view line) { lines_.emplace_back(line); });
  }
  void Finish() {
    splitter_.Finish([this](absl::string_view line) { lines_.emplace_back(line); });
  }
  std::optional<std::string> progress() const {
    if (const auto text = splitter_.progress()) return std::string(*text);
    return std::nullopt;
  }

  LineSplitter splitter_;
  Lines lines_;
};

TEST_F(LineSplitterTest, LinesComeOutWhenTheyAreWhole) {
  Feed("one\ntw");
  EXPECT_THAT(lines_, ElementsAre("one"));
  Feed("o\n\nthree");
  EXPECT_THAT(lines_, ElementsAre("one", "two", ""));
}

TEST_F(LineSplitterTest, LastLineWithoutNewlineComesOutAtTheEnd) {
  Feed("one\ntwo");
  Finish();
  EXPECT_THAT(lines_, ElementsAre("one", "two"));
  Finish();
  EXPECT_EQ(lines_.size(), 2u);
}

TEST_F(LineSplitterTest, NothingMoreComesOutAfterANewline) {
  Feed("one\n");
  Finish();
  EXPECT_THAT(lines_, ElementsAre("one"));
}

TEST_F(LineSplitterTest, CarriageReturnBeforeNewlineBelongsToIt) {
  Feed("one\r");
  Feed("\ntwo\r\n\r\n");
  EXPECT_THAT(lines_, ElementsAre("one", "two", ""));
}

TEST_F(LineSplitterTest, RedrawnLineCollapsesToItsLastState) {
  Feed("\r 10 %\r 20 %");
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_EQ(progress(), " 20 %");
  Feed("\r100 %\n");
  EXPECT_THAT(lines_, ElementsAre("100 %"));
  EXPECT_EQ(progress(), std::nullopt);
}

TEST_F(LineSplitterTest, UpdatesThatEndInACarriageReturnAreSeenAtOnce) {
  Feed("10 %\r");
  EXPECT_EQ(progress(), "10 %");
  Feed("20 %\r");
  EXPECT_EQ(progress(), "20 %");
  Finish();
  EXPECT_THAT(lines_, ElementsAre("20 %"));
}

TEST_F(LineSplitterTest, LineThatIsNotRedrawnIsNoProgress) {
  Feed("Loading ...");
  EXPECT_EQ(progress(), std::nullopt);
}

TEST_F(LineSplitterTest, BlanksWipeProgressOut) {
  Feed("\r100 %\r     \r");
  EXPECT_EQ(progress(), std::nullopt);
  Feed("done\n");
  EXPECT_THAT(lines_, ElementsAre("done"));
}

TEST_F(LineSplitterTest, OverlongLineIsCutWithoutLosingAByte) {
  const std::string longest(LineSplitter::kMaxLine, 'x');
  Feed(longest + "\n");
  EXPECT_THAT(lines_, ElementsAre(longest));
  lines_.clear();
  Feed(longest + longest);
  Feed("yz\n");
  EXPECT_THAT(lines_, ElementsAre(longest, longest, "yz"));
}

TEST_F(LineSplitterTest, AnyBytesArePassedOn) {
  const std::string odd("a\0b\xff\x1b[1m", 8);
  Feed(odd + "\n");
  EXPECT_THAT(lines_, ElementsAre(odd));
}

TEST_F(LineSplitterTest, HowTheStreamIsCutMakesNoDifference) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::string stream;
    for (int i = 0; i < 100; ++i) stream += "ab \r\n"[random() % 5];
    LineSplitter whole;
    Lines expected;
    const auto expect = [&](absl::string_view line) { expected.emplace_back(line); };
    whole.Feed(stream, expect);
    whole.Finish(expect);

    lines_.clear();
    absl::string_view left = stream;
    while (!left.empty()) {
      const size_t piece = 1 + random() % left.size();
      Feed(left.substr(0, piece));
      left.remove_prefix(piece);
    }
    Finish();
    ASSERT_EQ(lines_, expected) << ::testing::PrintToString(stream);
  }
}

}  // namespace
}  // namespace ronda
