// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/mpirun_part.h"

#include <csignal>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::optional<RankEnd> FailureIn(const std::string& text) {
  MpirunReport report;
  for (absl::string_view line : absl::StrSplit(text, '\n')) report.Add(line);
  return report.failure();
}

TEST(MpirunReportTest, OpenMpiNamesARankThatWasKilled) {
  const auto failure = FailureIn(
      "--------------------------------------------------------------------------\n"
      "mpirun.openmpi noticed that process rank 1 with PID 25960 on node hosta exited on signal 9 (Killed).\n"
      "--------------------------------------------------------------------------\n");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 1);
  EXPECT_EQ(failure->pid, 25960);
  EXPECT_EQ(failure->host, "hosta");
  EXPECT_EQ(failure->signal, SIGKILL);
  EXPECT_EQ(failure->exit_code, 0);
}

TEST(MpirunReportTest, OpenMpiNamesTheFirstRankThatExited) {
  const auto failure = FailureIn(
      "Primary job  terminated normally, but 1 process returned\n"
      "a non-zero exit code. Per user-direction, the job has been aborted.\n"
      "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
      "the job to be terminated. The first process to do so was:\n"
      "\n"
      "  Process name: [[14672,1],12]\n"
      "  Exit code:    3\n");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 12);
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_EQ(failure->signal, 0);
  EXPECT_EQ(failure->host, "");
}

TEST(MpirunReportTest, HydraNamesTheHostOfARankThatWasKilledAndAnotherRanksProcess) {
  const auto failure = FailureIn(
      "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
      "=   PID 25976 RUNNING AT hosta\n"
      "=   EXIT CODE: 9\n"
      "=   CLEANING UP REMAINING PROCESSES\n"
      "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\n");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, -1);
  EXPECT_EQ(failure->pid, 0);
  EXPECT_EQ(failure->host, "hosta");
  EXPECT_EQ(failure->signal, SIGKILL);
  EXPECT_EQ(failure->exit_code, 0);
}

TEST(MpirunReportTest, HydrasExitCodesAreCountedAcrossHosts) {
  const auto failure = FailureIn("[mpiexec@vm] Exit codes: [hosta] 0,0 [hostb] 0,768,256");
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank, 3);
  EXPECT_EQ(failure->host, "hostb");
  EXPECT_EQ(failure->exit_code, 3);
  EXPECT_FALSE(FailureIn("[mpiexec@vm] Exit codes: [hosta] 0,0").has_value());
}

TEST(MpirunReportTest, OtherTextsNameNobody) {
  for (const char* text :
       {"", "mpirun was unable to find the specified executable file, and therefore", "Exit code:    3",
        "Process name: [[14672,1],1]", "noticed that process rank x exited on signal 9",
        "EXIT STRING: Killed (signal 9)", "=   EXIT CODE: 9", "[mpiexec@vm] Exit codes: [vm] ???"}) {
    EXPECT_FALSE(FailureIn(text).has_value()) << text;
  }
}

// Returns the text in `pieces` without the start mark.
std::string OwnOutput(const std::vector<std::string>& pieces, StartMarkReader* reader) {
  std::string own;
  const auto append = [&](absl::string_view bytes) { absl::StrAppend(&own, bytes); };
  for (const std::string& piece : pieces) reader->Feed(piece, append);
  reader->Finish(append);
  return own;
}

TEST(StartMarkTest, CommandIsLedByAShellThatBecomesIt) {
  EXPECT_THAT(WithStartMark({"./train", "two words"}),
              ElementsAre("/bin/sh", "-c", "echo ronda-start $$ >&2; exec \"$@\"", "rondarun", "./train", "two words"));
}

TEST(StartMarkTest, ReaderUnderstandsWhatTheShellPrints) {
  const std::string script = WithStartMark({})[2];
  FILE* const pipe = popen(absl::StrCat("exec 2>&1; set -- sh -c 'echo own $$'; ", script).c_str(), "re");
  ASSERT_NE(pipe, nullptr);
  std::string output(100, '\0');
  output.resize(fread(output.data(), 1, output.size(), pipe));
  EXPECT_EQ(pclose(pipe), 0);
  StartMarkReader reader;
  const std::string own = OwnOutput({output}, &reader);
  ASSERT_TRUE(reader.pid().has_value()) << output;
  EXPECT_EQ(own, absl::StrCat("own ", *reader.pid(), "\n"));
}

TEST(StartMarkTest, MarkMayComeInPieces) {
  const std::string text = "ronda-start 4711\nronda-start 1\n";
  for (size_t at = 0; at <= text.size(); ++at) {
    StartMarkReader reader;
    EXPECT_EQ(OwnOutput({text.substr(0, at), text.substr(at)}, &reader), "ronda-start 1\n") << "cut at " << at;
    EXPECT_EQ(reader.pid(), 4711);
  }
}

TEST(StartMarkTest, OutputWithoutAMarkIsTheRanksOwn) {
  for (const std::string text : {"", "r", "ronda-start ", "ronda-start x\n", "ronda-start 12", "ronda-starts 12\n",
                                 "ronda-start 123456789012345\n", "hello\nronda-start 12\n", "\nronda-start 12\n"}) {
    StartMarkReader reader;
    EXPECT_EQ(OwnOutput({text}, &reader), text);
    EXPECT_EQ(reader.pid(), std::nullopt);
  }
}

TEST(StartMarkTest, TextThatCannotBeTheMarkIsNotHeldBack) {
  StartMarkReader reader;
  std::string own;
  reader.Feed("ronda: half a line", [&](absl::string_view bytes) { absl::StrAppend(&own, bytes); });
  EXPECT_EQ(own, "ronda: half a line");
}

constexpr int kMpirun = -1;

// Returns the output by rank. The key of mpirun's own output is kMpirun.
std::map<int, std::string> TakenApart(const std::vector<std::string>& pieces, int rank_count = 4) {
  TaggedOutput output(rank_count);
  std::map<int, std::string> texts;
  const auto collect = [&](std::optional<RankId> rank, absl::string_view bytes) {
    absl::StrAppend(&texts[rank.value_or(kMpirun)], bytes);
  };
  for (const std::string& piece : pieces) output.Feed(piece, collect);
  output.Finish(collect);
  return texts;
}

std::string SshWordsOf(const std::vector<std::string>& lines) {
  SshReport report;
  for (const std::string& line : lines) report.Add(line);
  return report.words();
}

TEST(SshReportTest, FirstWordsOfAnEndAreKept) {
  for (const std::string line :
       {"ssh: Could not resolve hostname b: Name or service not known",
        "ssh: connect to host b port 22: Connection refused", "me@b: Permission denied (publickey,password).",
        "kex_exchange_identification: Connection closed by remote host"}) {
    EXPECT_EQ(SshWordsOf({"Warning: Permanently added 'b'", line + "\r", "ORTE was unable", "ssh: again"}), line);
  }
  EXPECT_EQ(SshWordsOf({"a", "No ED25519 host key is known for b.\r", "Host key verification failed.\r"}),
            "No ED25519 host key is known for b. Host key verification failed.");
}

TEST(SshReportTest, OtherLinesAreNone) {
  EXPECT_EQ(SshWordsOf({"", "Permission denied, please try again.", "see ssh: it failed", "mpirun: error"}), "");
}

TEST(TaggedOutputTest, LinesGoToTheirRanks) {
  EXPECT_THAT(TakenApart({"[1,0]<stdout>:a\n[1,3]<stderr>:b\n[1,0]<stddiag>:c\n"}),
              ElementsAre(Pair(0, "a\nc\n"), Pair(3, "b\n")));
}

TEST(TaggedOutputTest, MarkWithinALineChangesTheRank) {
  EXPECT_THAT(TakenApart({"[1,0]<stdout>:half[1,1]<stdout>:other\n[1,0]<stdout>: and half\n"}),
              ElementsAre(Pair(0, "half and half\n"), Pair(1, "other\n")));
}

TEST(TaggedOutputTest, LinesWithoutAMarkAreMpiruns) {
  EXPECT_THAT(TakenApart({"hello\n[1,0]<stdout>:a\n------\nno such host\n[1,1]<stdout>:b\n"}),
              ElementsAre(Pair(kMpirun, "hello\n------\nno such host\n"), Pair(0, "a\n"), Pair(1, "b\n")));
}

TEST(TaggedOutputTest, EmptyLinesAreKept) {
  EXPECT_THAT(TakenApart({"[1,2]<stdout>:\n[1,2]<stdout>:\n"}), ElementsAre(Pair(2, "\n\n")));
}

TEST(TaggedOutputTest, CutsAnywhereMakeNoDifference) {
  const std::string text = "x[y\n[1,0]<stdout>:a[1]\n[1,12]<stderr>:b[12,3[1,1]<stdout>:c\n[1,0]<stdout";
  const std::map<int, std::string> whole = TakenApart({text}, 13);
  EXPECT_THAT(whole,
              ElementsAre(Pair(kMpirun, "x[y\n[1,0]<stdout"), Pair(0, "a[1]\n"), Pair(1, "c\n"), Pair(12, "b[12,3")));
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(TakenApart({text.substr(0, cut), text.substr(cut)}, 13), whole) << cut;
  }
  std::vector<std::string> bytes;
  for (const char c : text) bytes.emplace_back(1, c);
  EXPECT_EQ(TakenApart(bytes, 13), whole);
}

TEST(TaggedOutputTest, TextThatResemblesAMarkIsText) {
  for (const char* text :
       {"[1,4]<stdout>:x", "[1,]<stdout>:", "[,1]<stdout>:", "[1,1]<stdin>:", "[1,1] <stdout>:", "[[1",
        "[99999999999,1]<stdout>:", "[1,99999999999]<stdout>:", "[1,1]<stdout>x", "[a,1]<stdout>:"}) {
    EXPECT_THAT(TakenApart({text}), ElementsAre(Pair(kMpirun, text))) << text;
  }
}

}  // namespace
}  // namespace ronda
