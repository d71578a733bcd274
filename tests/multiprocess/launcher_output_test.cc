// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun forwards the output of its ranks.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Words = std::vector<std::string>;

TEST(LauncherOutputTest, EachStreamGoesToItsOwnWithTheRankInFront) {
  LauncherRun run(Shell(2, "echo out $RONDA_RANK; echo err $RONDA_RANK >&2"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: out 0", "[1]<stdout>: out 1"));
  EXPECT_THAT(Lines(run.err()), ::testing::UnorderedElementsAre("[0]<stderr>: err 0", "[1]<stderr>: err 1"));
}

TEST(LauncherOutputTest, LastLineNeedsNoNewline) {
  LauncherRun run(Shell(1, "printf 'one\\ntwo'; printf last >&2"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: one\n[0]<stdout>: two\n");
  EXPECT_EQ(run.err(), "[0]<stderr>: last\n");
}

TEST(LauncherOutputTest, ManyLinesOfManyRanksComeOutWholeAndInOrder) {
  constexpr int kRanks = 4;
  constexpr int kLines = 10000;
  LauncherRun run(Shell(kRanks, absl::StrCat("seq 1 ", kLines, " | sed \"s/^/line of $RONDA_RANK: /\"")));
  EXPECT_EQ(run.Finish(), 0);
  std::vector<int> next(kRanks, 1);
  for (const std::string& line : Lines(run.out())) {
    int mark = -1;
    int rank = -1;
    int number = -1;
    ASSERT_EQ(sscanf(line.c_str(), "[%d]<stdout>: line of %d: %d", &mark, &rank, &number), 3) << line;
    ASSERT_TRUE(rank >= 0 && rank < kRanks) << line;
    ASSERT_EQ(line, absl::StrCat("[", rank, "]<stdout>: line of ", rank, ": ", next[static_cast<size_t>(rank)]++));
  }
  EXPECT_EQ(next, std::vector<int>(kRanks, kLines + 1));
}

TEST(LauncherOutputTest, OverlongLinesAreCut) {
  // A line of 150,000 bytes, which the launcher prints as two pieces of 64 KiB and the rest.
  LauncherRun run(Shell(1, "head -c 150000 /dev/zero | tr '\\0' x; echo; echo next"));
  EXPECT_EQ(run.Finish(), 0);
  const Words lines = Lines(run.out());
  const std::string mark = "[0]<stdout>: ";
  EXPECT_THAT(lines, ElementsAre(mark + std::string(65536, 'x'), mark + std::string(65536, 'x'),
                                 mark + std::string(150000 - 2 * 65536, 'x'), mark + "next"));
}

TEST(LauncherOutputTest, TimestampsComeFirstIfWanted) {
  LauncherRun run({"-np", "1", "--prefix-output-with-timestamp", "echo", "hello"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}"
                                      "[+-][0-9]{2}:[0-9]{2} \\[0\\]<stdout>: hello\n"));
}

TEST(LauncherOutputTest, OutputIsCopiedToFilesIfWanted) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/logs.", getpid(), "/deep");
  LauncherRun run({"-np", "2", "--output-filename", directory, "sh", "-c",
                   "printf 'out %s\\n10%%\\r20%%' $RONDA_RANK; echo err $RONDA_RANK >&2"});
  EXPECT_EQ(run.Finish(), 0);
  for (const char* rank : {"0", "1"}) {
    const std::string own = absl::StrCat(directory, "/rank.", rank);
    EXPECT_EQ(ReadFile(own + "/stdout").value_or(""), absl::StrCat("out ", rank, "\n10%\r20%"));
    EXPECT_EQ(ReadFile(own + "/stderr").value_or(""), absl::StrCat("err ", rank, "\n"));
  }
  EXPECT_THAT(run.SortedOut(),
              ElementsAre("[0]<stdout>: 20%", "[0]<stdout>: out 0", "[1]<stdout>: 20%", "[1]<stdout>: out 1"));
}

TEST(LauncherOutputTest, FileThatCannotBeWrittenIsReportedOnceAndTheJobFailsAtItsEnd) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/full.", getpid());
  std::filesystem::create_directories(directory + "/rank.0");
  std::filesystem::create_symlink("/dev/full", directory + "/rank.0/stdout");
  const std::string go = directory + "/go";
  LauncherRun run({"-np", "1", "--output-filename", directory, "sh", "-c",
                   absl::StrCat("echo one; until [ -e ", go, " ]; do sleep 0.01; done; echo two")});
  run.WaitForOut("one");
  std::ofstream(go) << "";
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_EQ(run.out(), "[0]<stdout>: one\n[0]<stdout>: two\n");
  EXPECT_EQ(run.err(),
            absl::StrCat("rondarun: cannot write to ", directory, "/rank.0/stdout: No space left on device\n"));
}

TEST(LauncherOutputTest, ProgressCollapsesToItsLastStateInAPipe) {
  LauncherRun run(Shell(1, "for i in 1 2 3; do printf '\\rstep %s' $i; done; echo; printf '10%%\\r20%%\\r'"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: step 3\n[0]<stdout>: 20%\n");
}

TEST(LauncherOutputTest, ProgressIsRedrawnInPlaceOnATerminal) {
  // After "10%" and "20%", the script waits until the test has seen that output.
  const std::string go = absl::StrCat(::testing::TempDir(), "/go.", getpid(), ".");
  LauncherRun run(Shell(1, absl::StrCat("wait_for() { while [ ! -e ", go, "$1 ]; do sleep 0.01; done; }; ",
                                        "printf '\\r10%%'; wait_for 1; echo note >&2; printf '\\r20%%'; wait_for 2; "
                                        "printf '\\r30%%\\n'; echo terminal=$RONDA_OUTPUT_IS_TERMINAL")),
                  {.output = LauncherRun::Output::kTerminal});
  const std::string mark = "\x1b[?7l[0]<stdout>: ";
  const std::string end = "\x1b[?7h";
  run.WaitForOut(mark + "10%" + end);
  std::ofstream(go + "1") << "";
  run.WaitForOut(mark + "20%" + end);
  std::ofstream(go + "2") << "";
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), HasSubstr("\r\x1b[K[0]<stderr>: note\r\n"));
  EXPECT_THAT(run.out(), HasSubstr("\r\x1b[K[0]<stdout>: 30%\r\n[0]<stdout>: terminal=1\r\n"));
}

TEST(LauncherOutputTest, PipeIsNotAnnouncedAsATerminal) {
  LauncherRun run(Shell(1, "echo terminal=$RONDA_OUTPUT_IS_TERMINAL"), {.environment = {"RONDA_OUTPUT_IS_TERMINAL=1"}});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: terminal=\n");
}

TEST(LauncherOutputTest, ReaderThatGoesAwayEndsTheJob) {
  LauncherRun run(Shell(2, "while echo again; do :; done"));
  run.WaitForOut("again");
  run.CloseOut();
  EXPECT_EQ(run.Finish(), 128 + SIGPIPE);
  EXPECT_EQ(run.LastLine(), "rondarun: the job was ended: the standard output has no reader any more");
}

TEST(LauncherOutputTest, FullDeviceIsReportedAndTheJobFailsAtItsEnd) {
  LauncherRun run({"-np", "1", "sh", "-c", "exec programs/rondarun/rondarun -np 1 echo lost > /dev/full"});
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.err(), HasSubstr("rondarun: cannot write to the standard output: No space left on device"));
}

TEST(LauncherOutputTest, ReaderThatDoesNotReadCannotKeepTheLauncherFromEnding) {
  LauncherRun run(Shell(1, "while :; do echo a line that nobody reads; done"));
  run.StopReadingOut();
  run.Signal(SIGINT);
  run.WaitForErr("rondarun: the job was ended: received SIGINT\n");
  // The launcher is still waiting for the reader of its output, until a second interrupt.
  run.Signal(SIGINT);
  EXPECT_EQ(run.Finish(), 128 + SIGINT);
}

TEST(LauncherOutputTest, ReaderThatIsLateGetsEverything) {
  LauncherRun run(Shell(1, "seq 1 50000; echo done >&2"));
  run.StopReadingOut();
  run.StartReadingOut();
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(Lines(run.out()).size(), 50000u);
  EXPECT_EQ(run.err(), "[0]<stderr>: done\n");
}

TEST(LauncherOutputTest, OutputOfARankThatIsKilledIsNotLost) {
  LauncherRun run(Shell(1, "seq 1 5000; kill -9 $$"));
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_EQ(Lines(run.out()).size(), 5000u);
}

TEST(LauncherOutputTest, ProcessThatHoldsTheOutputOpenDoesNotKeepTheLauncher) {
  // Starts a process that leaves the rank's process group and session, but keeps both output pipes open.
  LauncherRun run(Shell(1, "setsid sleep 1000 & echo escaped=$!; exit 0"));
  run.WaitForOut("escaped=");
  EXPECT_EQ(run.Finish(), 0);
  kill(NumberAfter(run.out(), "escaped="), SIGKILL);
}

TEST(LauncherOutputTest, HiddenStreamIsOnlyInTheFiles) {
  const std::string directory = absl::StrCat(::testing::TempDir(), "/hidden.", getpid());
  LauncherRun run({"-r", "2", "--log-dir", directory, "-np", "1", "sh", "-c", "echo shown; echo hidden >&2; exit 3"});
  EXPECT_EQ(run.Finish(), 3);
  EXPECT_EQ(run.out(), "[0]<stdout>: shown\n");
  // The launcher reports the last error although the stream is hidden.
  EXPECT_THAT(run.err(), MatchesRegex("rondarun: rank 0 .* exited with code 3; last error: \"hidden\"\n"));
  EXPECT_EQ(ReadFile(directory + "/rank.0/stderr").value_or(""), "hidden\n");
}

}  // namespace
}  // namespace ronda
