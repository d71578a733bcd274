// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/verdict.h"

#include <csignal>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Cause = RankEnd::Cause;

RankId FirstOf(const std::vector<RankEnd>& ends) {
  const RankEnd* const first = FirstFailure(ends);
  return first == nullptr ? -1 : first->rank;
}

TEST(VerdictTest, NoRankFailedWhereAllExitedWithZero) { EXPECT_EQ(FirstOf({{.rank = 0}, {.rank = 1}}), -1); }

TEST(VerdictTest, FirstToFailDecides) {
  EXPECT_EQ(FirstOf({{.rank = 2, .exit_code = 1, .round = 3},
                     {.rank = 0, .exit_code = 0, .round = 1},
                     {.rank = 1, .signal = SIGSEGV, .round = 4}}),
            2);
}

TEST(VerdictTest, DeathByASignalGoesFirstInARound) {
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1}, {.rank = 1, .signal = SIGKILL}, {.rank = 2, .signal = SIGKILL}}), 1);
}

TEST(VerdictTest, LowestRankGoesFirstAmongEquals) {
  EXPECT_EQ(FirstOf({{.rank = 2, .exit_code = 1}, {.rank = 1, .exit_code = 7}}), 1);
}

TEST(VerdictTest, RankThatTheLauncherEndedDidNotFail) {
  EXPECT_EQ(FirstOf({{.rank = 0, .signal = SIGTERM, .round = 1, .cause = Cause::kLauncher},
                     {.rank = 1, .exit_code = 1, .round = 1}}),
            1);
  EXPECT_EQ(FirstOf({{.rank = 0, .signal = SIGINT, .cause = Cause::kLauncher}}), -1);
}

TEST(VerdictTest, ReportOfAnotherRanksFailureIsAConsequence) {
  const std::string report = "ronda::Error: allreduce 'w': rank 2 (host vm, pid 71) was killed by signal 9";
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1, .round = 1, .last_error = report},
                     {.rank = 1, .exit_code = 1, .round = 2, .last_error = report},
                     {.rank = 2, .signal = SIGKILL, .round = 3}}),
            2);
}

TEST(VerdictTest, ReportAboutARankThatDidNotFailStands) {
  const std::string report = "rank 1 (host vm, pid 71) has not submitted 'w'";
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1, .last_error = report}, {.rank = 1}}), 0);
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1, .round = 1, .last_error = report},
                     {.rank = 1, .signal = SIGTERM, .round = 2, .cause = Cause::kLauncher}}),
            0);
}

TEST(VerdictTest, ReportThatNamesItsOwnRankBlamesNobody) {
  const std::string report = "'w': rank 0 (host vm, pid 70) says shape [2], rank 1 (host vm, pid 71) says [3]";
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1, .round = 1, .last_error = report},
                     {.rank = 1, .exit_code = 1, .round = 2, .last_error = report}}),
            0);
}

TEST(VerdictTest, ReportsAreFollowedToTheRankThatBlamesNobody) {
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1, .round = 1, .last_error = "rank 1 (host a, pid 1) is gone"},
                     {.rank = 1, .exit_code = 1, .round = 2, .last_error = "rank 2 (host a, pid 2) is gone"},
                     {.rank = 2, .exit_code = 9, .round = 3, .last_error = "out of data"}}),
            2);
}

TEST(VerdictTest, RanksThatBlameEachOtherDoNotConfuseIt) {
  EXPECT_EQ(FirstOf({{.rank = 1, .exit_code = 1, .round = 1, .last_error = "rank 0 (host a, pid 1) is late"},
                     {.rank = 0, .exit_code = 1, .round = 2, .last_error = "rank 1 (host a, pid 2) is gone"}}),
            1);
}

TEST(VerdictTest, ARankThatHasShutDownIsTheCauseWhateverItSaysOfOthers) {
  const std::string report = "rank 1 (host a, pid 11) has shut down and will not submit tensor 'b'";
  const std::vector<RankEnd> ends = {
      {.rank = 0, .pid = 10, .host = "a", .exit_code = 1, .round = 1, .last_error = report},
      {.rank = 1, .pid = 11, .host = "a", .exit_code = 3, .round = 2, .last_error = "rank 0 (host a, pid 10) died"}};
  EXPECT_EQ(FirstOf(ends), 1);
  EXPECT_EQ(DescribeFailure(ends[1], ends), "rank 1 (pid 11, host a) exited with code 3");
}

TEST(VerdictTest, ARankThatEndedTooEarlyIsNamedBesideTheFailure) {
  const std::vector<RankEnd> ends = {
      {.rank = 0, .pid = 10, .host = "a", .exit_code = 1, .last_error = "rank 1 (host a, pid 11) died"},
      {.rank = 1, .pid = 11, .host = "a"}};
  EXPECT_EQ(FirstOf(ends), 0);
  EXPECT_EQ(DescribeFailure(ends[0], ends),
            "rank 0 (pid 10, host a) exited with code 1; last error: \"rank 1 (host a, pid 11) died\"; rank 1 (pid 11, "
            "host a) had ended with exit code 0, too early for the others");
}

TEST(VerdictTest, OtherTextsAboutRanksBlameNobody) {
  for (const char* text : {"rank 1 failed", "rank 1 (host vm) failed", "rank x (host vm, pid 3)",
                           "rank 99999999999 (host vm, pid 3)", "rank 5 (host vm, pid 3)", "rank 1 (host vm, pid 3"}) {
    EXPECT_EQ(
        FirstOf({{.rank = 0, .exit_code = 1, .round = 1, .last_error = text}, {.rank = 1, .exit_code = 1, .round = 2}}),
        0)
        << text;
  }
}

TEST(VerdictTest, FailureIsDescribedInOneLine) {
  EXPECT_EQ(DescribeFailure({.rank = 2, .pid = 4711, .host = "h", .signal = SIGKILL, .last_error = "  boom \r"}),
            "rank 2 (pid 4711, host h) was killed by signal 9 (SIGKILL); last error: \"boom\"");
  EXPECT_EQ(DescribeFailure({.rank = 0, .pid = 1, .host = "h", .exit_code = 3}),
            "rank 0 (pid 1, host h) exited with code 3");
}

TEST(VerdictTest, UnknownFactsAreLeftOut) {
  EXPECT_EQ(DescribeFailure({.rank = 1, .host = "h", .exit_code = 3}), "rank 1 (host h) exited with code 3");
  EXPECT_EQ(DescribeFailure({.rank = -1, .pid = 4, .host = "h", .signal = SIGSEGV}),
            "a rank (pid 4, host h) was killed by signal 11 (SIGSEGV)");
  EXPECT_EQ(DescribeFailure({.rank = 1, .exit_code = 3}), "rank 1 exited with code 3");
}

TEST(VerdictTest, LostRankHasFailed) {
  const RankEnd lost = {.rank = 1, .pid = 5, .host = "b", .round = 2, .lost = "the way to b is cut"};
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 0, .round = 1}, lost}), 1);
  EXPECT_EQ(DescribeFailure(lost), "rank 1 (pid 5, host b) was lost: the way to b is cut");
  EXPECT_EQ(ExitCodeOf(lost), 1);
}

TEST(VerdictTest, AMembersReportAboutOthersIsNotQuoted) {
  const RankEnd killed = {
      .rank = 5, .pid = 71, .host = "h", .signal = SIGKILL, .last_error = "ronda[1] E rank 3 (host h, pid 70) died"};
  EXPECT_EQ(DescribeFailure(killed, Naming::kMember), "member 5 (pid 71, host h) was killed by signal 9 (SIGKILL)");
  const RankEnd failed = {.rank = 5, .pid = 71, .host = "h", .exit_code = 3, .last_error = "no such file"};
  EXPECT_EQ(DescribeFailure(failed, Naming::kMember),
            "member 5 (pid 71, host h) exited with code 3; last error: \"no such file\"");
}

TEST(VerdictTest, ReportOfARankThatWasLostIsAConsequence) {
  EXPECT_EQ(FirstOf({{.rank = 0, .exit_code = 1, .round = 1, .last_error = "rank 1 (host b, pid 5) is gone"},
                     {.rank = 1, .host = "b", .round = 2, .lost = "the way to b is cut"}}),
            1);
}

TEST(VerdictTest, LongErrorsAreCut) {
  const std::string text =
      DescribeFailure({.rank = 0, .pid = 1, .host = "h", .exit_code = 3, .last_error = std::string(5000, 'x')});
  EXPECT_LT(text.size(), 1200u);
  EXPECT_THAT(text, EndsWith("xxx...\""));
}

TEST(VerdictTest, SignalsWithoutANameAreNumbers) {
  EXPECT_EQ(SignalName(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalName(63), "signal 63");
}

TEST(VerdictTest, ExitCodeIsTheRanksOrThatOfItsSignal) {
  EXPECT_EQ(ExitCodeOf({.exit_code = 3}), 3);
  EXPECT_EQ(ExitCodeOf({.signal = SIGKILL}), 137);
}

TEST(LateStartTest, RanksAndHostsAreNamed) {
  EXPECT_THAT(DescribeLateStart({{2, "beta"}}, absl::Seconds(30)),
              StartsWith("rank 2 (host beta) was not started within 30s: "));
  EXPECT_THAT(DescribeLateStart({{2, "beta"}, {3, "beta"}}, absl::Milliseconds(1500)),
              StartsWith("ranks 2, 3 (host beta) were not started within 1.5s: "));
  EXPECT_THAT(DescribeLateStart({{3, "beta"}, {0, "alpha"}, {1, "alpha"}}, absl::Seconds(30)),
              StartsWith("ranks 0, 1, 3 (hosts beta, alpha) were not started within 30s: "));
}

TEST(LateStartTest, SaysWhatToLookAt) {
  EXPECT_THAT(DescribeLateStart({{0, "alpha"}}, absl::Seconds(30)),
              AllOf(HasSubstr("rondarun --check"), HasSubstr("--network-interfaces"), HasSubstr("--start-timeout")));
}

TEST(DescribeEndTest, LackOfMemoryIsToldOfARankThatWasKilled) {
  EXPECT_THAT(DescribeEnd({.signal = SIGKILL, .oom_kills = {1, 0}}),
              HasSubstr("(SIGKILL), and since the job began its host has killed 1 process for lack of memory"));
  EXPECT_THAT(DescribeEnd({.signal = SIGKILL}), Not(HasSubstr("memory")));
  EXPECT_THAT(DescribeEnd({.signal = SIGTERM, .oom_kills = {1, 1}}), Not(HasSubstr("memory")));
  EXPECT_THAT(DescribeEnd({.exit_code = 1, .oom_kills = {1, 1}}), Not(HasSubstr("memory")));
  EXPECT_EQ(DescribeEnd({.signal = SIGKILL, .oom_kills = {2, 1}}),
            "was killed by signal 9 (SIGKILL) by the kernel for lack of memory (1 in its control group since the job "
            "began): give the host or container more memory, or run fewer ranks there");
}

TEST(DescribeEndAndErrorTest, AReportAboutRanksIsNotQuotedOfAMember) {
  const RankEnd own = {.rank = 3, .exit_code = 1, .last_error = "disk on fire"};
  EXPECT_EQ(DescribeEndAndError(own, Naming::kMember), "exited with code 1; last error: \"disk on fire\"");
  const RankEnd report = {.rank = 3, .exit_code = 1, .last_error = "rank 2 (host a, pid 71) died"};
  EXPECT_EQ(DescribeEndAndError(report, Naming::kMember), "exited with code 1");
  EXPECT_EQ(DescribeEndAndError(report, Naming::kRank),
            "exited with code 1; last error: \"rank 2 (host a, pid 71) died\"");
}

}  // namespace
}  // namespace ronda
