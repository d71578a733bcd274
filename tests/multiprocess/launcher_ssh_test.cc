// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun starts ranks through agents on other hosts. All hosts are this host under other names, and a
// script that stands in for ssh runs the commands here.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/monitor/jobs/job_origin.h"
#include "runtime/monitor/peer_monitor.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

class LauncherSshTest : public ::testing::Test {
 protected:
  LauncherSshTest() : agent_(absl::StrCat(::testing::TempDir(), "/agent.", getpid())) {
    WriteAgent("shift; echo 'Welcome!'; exec sh -c \"$*\"");
  }
  ~LauncherSshTest() override { std::filesystem::remove(agent_); }

  void WriteAgent(const std::string& script) const {
    std::ofstream(agent_) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(agent_, std::filesystem::perms::owner_all);
  }

  // Returns arguments that start ranks 0 and 1 on host alpha, and rank 2 on host beta.
  std::vector<std::string> OnTwoHosts(const std::string& script) const {
    return {"-np", "3", "-H", "alpha:2,beta:1", "--launcher", "ssh", "--launch-agent", agent_, "sh", "-c", script};
  }

  const std::string agent_;
};

TEST_F(LauncherSshTest, RanksLearnTheirPlacesAndWhereToMeet) {
  LauncherRun run(
      OnTwoHosts("echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
                 "$HOROVOD_CROSS_RANK/$RONDA_CROSS_SIZE $RONDA_MASTER_ADDR host=$GROUP_RANK job=$RONDA_JOB_ID "
                 "secret=${#RONDA_JOB_SECRET} port=$((RONDA_MASTER_PORT > 1023))"));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: 0/3 0/2 0/2 alpha host=0 job= secret=64 port=1",
                                           "[1]<stdout>: 1/3 1/2 0/1 alpha host=0 job= secret=64 port=1",
                                           "[2]<stdout>: 2/3 0/1 1/2 alpha host=1 job= secret=64 port=1"));
  EXPECT_EQ(run.err(), "");
}

TEST_F(LauncherSshTest, RanksMeetAtTheSamePort) {
  LauncherRun run(OnTwoHosts("echo port=$RONDA_MASTER_PORT store=$MASTER_PORT at $MASTER_ADDR"));
  EXPECT_EQ(run.Finish(), 0);
  const auto port = NumberAfter(run.out(), "port=");
  const auto store = NumberAfter(run.out(), "store=");
  EXPECT_NE(port, store);
  EXPECT_THAT(Lines(run.out()), Each(HasSubstr(absl::StrCat("port=", port, " store=", store, " at alpha"))));
}

TEST_F(LauncherSshTest, VariablesTravelAndSecretsAreOnNoCommandLine) {
  WriteAgent("shift; echo \"$*\" >&2; exec sh -c \"$*\"");
  std::vector<std::string> words = OnTwoHosts("echo $MY $RONDA_LOG_LEVEL; pwd; echo secret=$RONDA_JOB_SECRET");
  words.insert(words.begin(), {"-x", "MY", "--verbose"});
  LauncherRun run(words, {.environment = {"MY=own value", "RONDA_LOG_LEVEL=info"}});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.out(), HasSubstr("[2]<stdout>: own value info\n"));
  EXPECT_THAT(run.out(), HasSubstr("[2]<stdout>: " + std::filesystem::current_path().string() + "\n"));
  const std::string label = "secret=";
  const std::string secret = run.out().substr(run.out().find(label) + label.size(), 64);
  EXPECT_THAT(secret, MatchesRegex("[0-9a-f]+"));
  EXPECT_THAT(run.err(), AllOf(HasSubstr("--agent"), Not(HasSubstr(secret)), Not(HasSubstr("own value"))));
}

TEST_F(LauncherSshTest, FailureIsNamedWithItsHost) {
  LauncherRun run(OnTwoHosts("[ $RONDA_RANK = 2 ] || exec sleep 600; echo disk on fire >&2; kill -9 $$"));
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_THAT(run.LastLine(), MatchesRegex("rondarun: rank 2 \\(pid [0-9]+, host beta\\) was killed by signal 9 "
                                           "\\(SIGKILL\\); last error: \"disk on fire\""));
  EXPECT_THAT(run.err(), HasSubstr("a rank has failed; telling ranks 0, 1 to end (SIGTERM)"));
}

// Each call of the script that stands in for ssh waits until the script has been called for all hosts.
TEST_F(LauncherSshTest, AgentsOfManyHostsAreStartedAtTheSameTime) {
  constexpr int kHosts = 64;
  const std::string called = agent_ + ".called";
  std::filesystem::create_directory(called);
  WriteAgent(absl::StrCat("host=$1; shift; line=\"$*\"; : > ", called, "/$host; set -- ", called, "/*; while [ $# -lt ",
                          kHosts, " ]; do sleep 0.1; set -- ", called, "/*; done; exec sh -c \"$line\""));
  std::vector<std::string> hosts;
  for (int i = 0; i < kHosts; ++i) hosts.push_back(absl::StrCat("host", i, ":2"));
  LauncherRun run({"-np", absl::StrCat(2 * kHosts), "-H", absl::StrJoin(hosts, ","), "--launcher", "ssh",
                   "--launch-agent", agent_, "sh", "-c", "echo $RANK on $GROUP_RANK"});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  std::vector<std::string> expected;
  for (int rank = 0; rank < 2 * kHosts; ++rank) {
    expected.push_back(absl::StrCat("[", rank, "]<stdout>: ", rank, " on ", rank / 2));
  }
  EXPECT_THAT(Lines(run.out()), UnorderedElementsAreArray(expected));
  std::filesystem::remove_all(called);
}

TEST_F(LauncherSshTest, ManyLinesArriveWhole) {
  LauncherRun run(OnTwoHosts("seq 1 20000 | sed \"s/^/$RONDA_RANK: /\""));
  EXPECT_EQ(run.Finish(), 0);
  const std::vector<std::string> lines = Lines(run.out());
  EXPECT_EQ(lines.size(), 60000u);
  std::vector<int> next(3, 1);
  for (const std::string& line : lines) {
    const auto rank = static_cast<size_t>(line[1] - '0');
    ASSERT_EQ(line, absl::StrCat("[", rank, "]<stdout>: ", rank, ": ", next[rank]++));
  }
}

TEST_F(LauncherSshTest, MissingCommandIsNamedWithItsHost) {
  LauncherRun run(
      {"-np", "2", "-H", "alpha:1,beta:1", "--launcher", "ssh", "--launch-agent", agent_, "./no-such-command"});
  EXPECT_EQ(run.Finish(), 127);
  EXPECT_THAT(run.LastLine(), MatchesRegex("rondarun: host (alpha|beta): command not found: ./no-such-command"));
}

TEST_F(LauncherSshTest, HostThatCannotBeReachedIsNamedWithTheReason) {
  WriteAgent(
      "[ $1 = beta ] && { echo 'ssh: connect to host beta port 22: No route to host' >&2; exit 255; }; "
      "shift; exec sh -c \"$*\"");
  LauncherRun run(OnTwoHosts("exec sleep 600"));
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_EQ(run.err(),
            "rondarun: host beta: the connection to its agent exited with code 255 (ssh: connect to host beta port 22: "
            "No route to host); rondarun --check -H beta:1 tells more\n");
}

TEST_F(LauncherSshTest, HostThatDoesNotAnswerIsNamedAfterTheStartTimeout) {
  WriteAgent("[ $1 = beta ] && { echo agent=$$ >&2; exec sleep 600; }; shift; exec sh -c \"$*\"");
  std::vector<std::string> words = OnTwoHosts("exec sleep 600");
  words.insert(words.begin(), {"--start-timeout", "4", "--verbose"});
  LauncherRun run(words);
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.LastLine(), StartsWith("rondarun: rank 2 (host beta) was not started within 4s: "));
  const pid_t agent = NumberAfter(run.err(), "agent=");
  WaitUntil([&] { return !IsRunning(agent); }, "the end of the agent");
}

TEST_F(LauncherSshTest, HostThatIsLostTakesItsRanksWithIt) {
  WriteAgent("[ $1 = beta ] && echo agent=$$ >&2; shift; exec sh -c \"$*\"");
  std::vector<std::string> words = OnTwoHosts("echo pid$RONDA_RANK=$$; exec sleep 600");
  words.insert(words.begin(), "--verbose");
  LauncherRun run(words);
  run.WaitForOut("pid2=");
  run.WaitForErr("agent=");
  kill(NumberAfter(run.err(), "agent="), SIGKILL);
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.LastLine(),
              HasSubstr("rondarun: rank 2 (host beta) was lost: the connection to its agent was killed by"));
  const pid_t rank = NumberAfter(run.out(), "pid2=");
  WaitUntil([&] { return !IsRunning(rank); }, "the end of a rank");
}

TEST_F(LauncherSshTest, SignalsArePassedToAllRanks) {
  LauncherRun run(OnTwoHosts("trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.05; done"));
  run.WaitForOut("ready", 3);
  run.Signal(SIGTERM);
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  run.WaitForOut("told", 3);
}

TEST_F(LauncherSshTest, ProcessesEndWhenTheLauncherIsKilled) {
  LauncherRun run(OnTwoHosts("echo pid$RONDA_RANK=$$; exec sleep 600"));
  for (const char* label : {"pid0=", "pid1=", "pid2="}) run.WaitForOut(label);
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Finish(), -SIGKILL);
  for (const char* label : {"pid0=", "pid1=", "pid2="}) {
    const pid_t pid = NumberAfter(run.out(), label);
    WaitUntil([&] { return !IsRunning(pid); }, "the end of a rank");
  }
}

TEST_F(LauncherSshTest, NameOfTheJobIsKnownOnOtherHosts) {
  std::vector<std::string> words = OnTwoHosts("echo pid$RONDA_RANK=$$; exec sleep 600");
  words.insert(words.begin(), {"--name", "resnet&50"});
  LauncherRun run(words);
  for (const char* label : {"pid0=", "pid2="}) {
    run.WaitForOut(label);
    const pid_t rank = NumberAfter(run.out(), label);
    EXPECT_EQ(OriginOf(rank).launcher, run.pid());
    EXPECT_EQ(OriginOf(rank).name, "resnet&50");
    const std::vector<std::string> agent = WordsOf(ReadProcessStat(rank)->parent, "cmdline");
    EXPECT_TRUE(IsAgent(agent)) << "all that another host would have";
    EXPECT_EQ(NameOfAgentsJob(agent), "resnet&50");
  }
}

TEST_F(LauncherSshTest, DryRunPrintsALineForEachHost) {
  std::vector<std::string> words = OnTwoHosts("true");
  words.insert(words.begin(), "--dry-run");
  LauncherRun run(words);
  EXPECT_EQ(run.Finish(), 0);
  const std::vector<std::string> lines = Lines(run.out());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr(" alpha 'exec "));
  EXPECT_THAT(lines[1], HasSubstr(" beta 'exec "));
}

TEST_F(LauncherSshTest, ThisHostNeedsNoSsh) {
  WriteAgent("exit 1");
  LauncherRun run({"-np", "2", "-H", "localhost:2", "--launcher", "ssh", "sh", "-c", "echo $RONDA_RANK"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: 0", "[1]<stdout>: 1"));
}

}  // namespace
}  // namespace ronda
