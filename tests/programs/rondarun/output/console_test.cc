// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/output/console.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using LinePrefix = LaunchOptions::LinePrefix;
using Lines = std::vector<std::string>;

// Returns what a terminal of unlimited width shows after `bytes`: all finished lines, and then the unfinished one.
std::string Screen(absl::string_view bytes) {
  std::string done;
  std::string line;
  size_t column = 0;
  while (!bytes.empty()) {
    if (absl::ConsumePrefix(&bytes, "\x1b[K")) {
      line.resize(column);
    } else if (absl::ConsumePrefix(&bytes, "\x1b[?7l") || absl::ConsumePrefix(&bytes, "\x1b[?7h")) {
      continue;
    } else {
      const char c = bytes.front();
      bytes.remove_prefix(1);
      if (c == '\n') {
        done += line + "\n";
        line.clear();
        column = 0;
      } else if (c == '\r') {
        column = 0;
      } else {
        line.resize(std::max(line.size(), column + 1));
        line[column++] = c;
      }
    }
  }
  return done + line;
}

class ConsoleTest : public ::testing::Test {
 protected:
  std::string out() const { return std::string(out_.pending()); }
  std::string err() const { return std::string(err_.pending()); }

  OutputQueue out_{-1};
  OutputQueue err_{-1};
};

class FileConsoleTest : public ConsoleTest {
 protected:
  Console console_{{.rank_count = 3}, &out_, &err_, Clock::Real()};
};

TEST_F(FileConsoleTest, LinesAreWholeAndMarkedWithTheRank) {
  console_.Feed(0, Stream::kStdout, "he");
  console_.Feed(2, Stream::kStdout, "hi\n");
  console_.Feed(0, Stream::kStdout, "llo\n");
  EXPECT_EQ(out(), "[2]<stdout>: hi\n[0]<stdout>: hello\n");
  EXPECT_EQ(err(), "");
}

TEST_F(FileConsoleTest, StreamsStayApart) {
  console_.Feed(1, Stream::kStdout, "a");
  console_.Feed(1, Stream::kStderr, "b\n");
  console_.Finish(1, Stream::kStdout);
  EXPECT_EQ(out(), "[1]<stdout>: a\n");
  EXPECT_EQ(err(), "[1]<stderr>: b\n");
}

TEST_F(FileConsoleTest, RedrawnLinesComeOutOnce) {
  console_.Feed(0, Stream::kStdout, "\r10 %");
  console_.Feed(0, Stream::kStdout, "\r100 %");
  EXPECT_EQ(out(), "");
  console_.Feed(0, Stream::kStdout, "\n");
  EXPECT_EQ(out(), "[0]<stdout>: 100 %\n");
}

TEST_F(FileConsoleTest, LastErrorIsTheLastLineOnStderrThatIsNotBlank) {
  EXPECT_EQ(console_.last_error(0), "");
  console_.Feed(0, Stream::kStderr, "first\nsecond\n \n\n");
  console_.Feed(0, Stream::kStdout, "third\n");
  console_.Feed(1, Stream::kStderr, "other rank\n");
  EXPECT_EQ(console_.last_error(0), "second");
  console_.Feed(0, Stream::kStderr, "unfinished");
  console_.Finish(0, Stream::kStderr);
  EXPECT_EQ(console_.last_error(0), "unfinished");
}

TEST_F(FileConsoleTest, InformationThatRondaLogsIsNoError) {
  console_.Feed(0, Stream::kStderr, "disk on fire\nronda[0] I tensors go over nccl\nronda[0] D more\n");
  EXPECT_EQ(console_.last_error(0), "disk on fire");
  console_.Feed(0, Stream::kStderr, "ronda[0] W tensor 'x' waits for rank 1\n");
  EXPECT_EQ(console_.last_error(0), "ronda[0] W tensor 'x' waits for rank 1");
}

TEST_F(FileConsoleTest, LaunchersOwnLinesGoToStderr) {
  console_.Say("text");
  EXPECT_EQ(err(), "rondarun: text\n");
}

TEST_F(ConsoleTest, TimestampComesFirst) {
  Console console({.rank_count = 1, .line_prefix = LinePrefix::kTimestampAndRank}, &out_, &err_, Clock::Real());
  console.Feed(0, Stream::kStdout, "x\n");
  EXPECT_THAT(out(), MatchesRegex("[0-9]+-[0-9]+-[0-9]+T[0-9:]+\\.[0-9]+[+-][0-9]+:[0-9]+ \\[0\\]<stdout>: x\n"));
}

class TerminalConsoleTest : public ConsoleTest {
 protected:
  std::string screen() const { return Screen(out_.pending()); }

  // Standard output and standard error go to the same terminal.
  Console console_{{.rank_count = 3, .media = {Medium::kTerminal, Medium::kTerminal}}, &out_, &out_, Clock::Real()};
};

TEST_F(TerminalConsoleTest, ProgressIsRedrawnInPlace) {
  console_.Feed(0, Stream::kStdout, "\r 9 % of all");
  EXPECT_EQ(screen(), "[0]<stdout>:  9 % of all");
  console_.Feed(0, Stream::kStdout, "\r10 %");
  EXPECT_EQ(screen(), "[0]<stdout>: 10 %");
  console_.Feed(0, Stream::kStdout, "\n");
  EXPECT_EQ(screen(), "[0]<stdout>: 10 %\n");
}

TEST_F(TerminalConsoleTest, OtherLinesComeOutAboveProgress) {
  console_.Feed(0, Stream::kStdout, "\r10 %");
  console_.Feed(1, Stream::kStderr, "warning\n");
  EXPECT_EQ(screen(), "[1]<stderr>: warning\n[0]<stdout>: 10 %");
  console_.Say("text");
  EXPECT_EQ(screen(), "[1]<stderr>: warning\nrondarun: text\n[0]<stdout>: 10 %");
}

TEST_F(TerminalConsoleTest, FirstProgressKeepsItsPlace) {
  console_.Feed(0, Stream::kStdout, "\r10 %");
  console_.Feed(1, Stream::kStdout, "\r70 %");
  EXPECT_EQ(screen(), "[0]<stdout>: 10 %");
  console_.Feed(0, Stream::kStdout, "\rdone\n");
  console_.Feed(1, Stream::kStdout, "\r80 %");
  EXPECT_EQ(screen(), "[0]<stdout>: done\n[1]<stdout>: 80 %");
}

TEST_F(TerminalConsoleTest, ProgressOfARankThatEndsBecomesALine) {
  console_.Feed(0, Stream::kStdout, "\r10 %");
  console_.Finish(0, Stream::kStdout);
  console_.Feed(1, Stream::kStdout, "\r70 %");
  EXPECT_EQ(screen(), "[0]<stdout>: 10 %\n[1]<stdout>: 70 %");
}

TEST_F(TerminalConsoleTest, WipedOutProgressLeavesNothing) {
  console_.Feed(0, Stream::kStderr, "\r10 %");
  console_.Feed(0, Stream::kStderr, "\r    \r");
  EXPECT_EQ(screen(), "");
  console_.Feed(1, Stream::kStdout, "\r70 %");
  EXPECT_EQ(screen(), "[1]<stdout>: 70 %");
}

TEST_F(TerminalConsoleTest, ProgressThatErasesItsLineDoesNotEraseTheMark) {
  console_.Feed(0, Stream::kStdout, "\r\x1b[2K10 %");
  EXPECT_EQ(screen(), "[0]<stdout>: 10 %");
  EXPECT_THAT(out(), Not(HasSubstr("\x1b[2K")));
}

TEST_F(TerminalConsoleTest, WrappingIsSwitchedBackOnAfterEachDrawing) {
  console_.Feed(0, Stream::kStdout, "\r10 %");
  EXPECT_THAT(out(), EndsWith("\x1b[?7h"));
}

TEST_F(TerminalConsoleTest, QuestionIsShownAndTheAnswerComesBehindIt) {
  console_.Feed(0, Stream::kStdout, "(Pdb) ");
  console_.ShowPrompt(0);
  EXPECT_EQ(Screen(out()), "[0]<stdout>: (Pdb) ");
  // At this point, a real terminal would show the typed text "p x" and a newline.
  console_.Feed(0, Stream::kStdout, "42\n(Pdb) ");
  EXPECT_EQ(Screen(out()), "[0]<stdout>: (Pdb) [0]<stdout>: 42\n");
  console_.ShowPrompt(0);
  console_.Feed(1, Stream::kStdout, "step 3\n");
  console_.Say("bye");
  EXPECT_EQ(Screen(out()),
            "[0]<stdout>: (Pdb) [0]<stdout>: 42\n[0]<stdout>: (Pdb) \n[1]<stdout>: step 3\nrondarun: bye\n");
}

TEST_F(FileConsoleTest, QuestionThatNobodySeesStaysPartOfItsLine) {
  console_.Feed(0, Stream::kStdout, "name? ");
  console_.ShowPrompt(0);
  console_.Feed(0, Stream::kStdout, "hello\n");
  EXPECT_EQ(out(), "[0]<stdout>: name? hello\n");
}

TEST_F(TerminalConsoleTest, UnfinishedLinesThatAreNotRedrawnWait) {
  console_.Feed(0, Stream::kStdout, "Loading ...");
  EXPECT_EQ(screen(), "");
}

TEST_F(ConsoleTest, EachStreamIsDrawnAsItsOwnMediumAllows) {
  Console console({.rank_count = 1, .media = {Medium::kFile, Medium::kTerminal}}, &out_, &err_, Clock::Real());
  console.Feed(0, Stream::kStdout, "\r10 %");
  EXPECT_EQ(out(), "");
  console.Feed(0, Stream::kStderr, "\r20 %");
  EXPECT_EQ(Screen(err()), "[0]<stderr>: 20 %");
}

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

TEST_F(LineSplitterTest, NoTextIsLeftAfterANewline) {
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
