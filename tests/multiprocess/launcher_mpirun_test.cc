// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun supervises an mpirun that starts the ranks.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

// The parameter names an MPI implementation, whose mpirun comes first in the launcher's PATH. A script stands in for
// ssh, and runs the commands for other hosts on this host.
class LauncherMpirunTest : public ::testing::TestWithParam<std::string> {
 protected:
  LauncherMpirunTest() : directory_(absl::StrCat(::testing::TempDir(), "/mpirun.", getpid(), ".", GetParam())) {
    std::filesystem::create_directories(directory_);
    WriteScript("mpirun", absl::StrCat("exec /usr/bin/mpirun.", GetParam(), " \"$@\""));
    // As on real hosts, each host has its own folder for temporary files. Open MPI daemons that start at the same time
    // and share the folder sometimes hang.
    WriteScript("agent", absl::StrCat("export TMPDIR=", directory_, "/$1; mkdir -p $TMPDIR; shift; exec sh -c \"$*\""));
  }
  void SetUp() override {
    if (access(absl::StrCat("/usr/bin/mpirun.", GetParam()).c_str(), X_OK) != 0) {
      GTEST_SKIP() << "there is no mpirun." << GetParam() << " on this machine";
    }
  }
  ~LauncherMpirunTest() override { std::filesystem::remove_all(directory_); }

  LauncherRun::Options Options() const {
    return {.environment = {absl::StrCat("PATH=", directory_, ":", getenv("PATH")), "OMPI_ALLOW_RUN_AS_ROOT=1",
                            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "MY_SECRET=hidden"}};
  }

  // Returns arguments that run `script` on this host. The script can use $RANK.
  std::vector<std::string> OnThisHost(int rank_count, const std::string& script) const {
    return {"-np", absl::StrCat(rank_count), "--mpi", "--grace-period", "1", "sh", "-c", WithRank(script)};
  }

  // Returns arguments that make mpirun start two ranks on host a and one rank on host b.
  std::vector<std::string> OnTwoHosts(const std::vector<std::string>& more) const {
    std::vector<std::string> words = {
        "-np", "3", "-H", "a:2,b:1", "--launcher", "mpirun", "--launch-agent", directory_ + "/agent"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Returns arguments that run `script` on hosts a and b. The script can use $RANK.
  std::vector<std::string> ScriptOnTwoHosts(const std::string& script) const {
    return OnTwoHosts({"--grace-period", "1", "-x", "MY_SECRET", "sh", "-c", WithRank(script)});
  }

  static std::string WithRank(const std::string& script) {
    return "RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; " + script;
  }

  // Runs a job of two ranks. Rank 1 runs `script`, which fails, and rank 0 runs `other`. Both first wait until mpirun
  // has forwarded output of both. Otherwise, on a busy machine, MPI might fail to report the end of a rank that it has
  // only just started. (MPICH's Hydra then fails one of its own assertions.)
  std::unique_ptr<LauncherRun> FailAsRank1(const std::string& script, const std::string& other) const {
    const std::string go = directory_ + "/go";
    auto run = std::make_unique<LauncherRun>(
        OnThisHost(2, absl::StrCat("echo up; until [ -e ", go, " ]; do sleep 0.01; done; [ $RANK = 1 ] || ", other,
                                   "; ", script)),
        Options());
    run->WaitForOut("up", 2);
    std::ofstream(go) << "";
    return run;
  }

  void WriteScript(const std::string& name, const std::string& text) const {
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }

  bool IsOpenMpi() const { return GetParam() == "openmpi"; }

  const std::string directory_;
};

INSTANTIATE_TEST_SUITE_P(Both, LauncherMpirunTest, ::testing::Values("openmpi", "mpich"),
                         [](const auto& test) { return test.param; });

TEST_P(LauncherMpirunTest, HostThatSshDoesNotReachIsToldInOneLine) {
  const std::string words = "ssh: Could not resolve hostname b: Name or service not known";
  WriteScript("agent", absl::StrCat("[ $1 = a ] || { echo '", words, "' >&2; exit 255; }; shift; exec sh -c \"$*\""));
  LauncherRun run(ScriptOnTwoHosts("exec sleep 600"), Options());
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_EQ(run.err(), absl::StrCat("rondarun: mpirun cannot start the ranks: ", words,
                                    "; rondarun --check -H a:2,b:1 looks at the hosts\n"));
}

TEST_P(LauncherMpirunTest, OutputIsMarkedAsTheLaunchersOwnRanksIs) {
  LauncherRun run(OnThisHost(2, "printf 'half '; sleep 0.1; echo line $RANK; echo oops >&2"), Options());
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: half line 0", "[1]<stdout>: half line 1"));
  EXPECT_THAT(run.err(), HasSubstr("[0]<stderr>: oops\n"));
  EXPECT_THAT(run.err(), HasSubstr("[1]<stderr>: oops\n"));
}

TEST_P(LauncherMpirunTest, RanksKnowTheirPlaceBeforeTheyBegin) {
  const std::string say = "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE host=$GROUP_RANK $HOROVOD_CROSS_SIZE";
  LauncherRun run({"-np", "2", "--mpi", "sh", "-c", say}, Options());
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: 0/2 0/2 host=0 1", "[1]<stdout>: 1/2 1/2 host=0 1"));
  // If the hosts have different numbers of ranks, the host number cannot be computed from the rank, so its variable is
  // empty.
  LauncherRun hosts(OnTwoHosts({"sh", "-c", say}), Options());
  EXPECT_EQ(hosts.Finish(), 0) << hosts.err();
  for (const std::string& line : Lines(hosts.out())) {
    EXPECT_THAT(line, MatchesRegex("\\[([0-2])\\]<stdout>: [0-2]/3 [0-1]/[1-3] host="));
  }
}

TEST_P(LauncherMpirunTest, EveryRankHasItsFiles) {
  std::vector<std::string> words = OnThisHost(2, "echo $RANK");
  words.insert(words.begin(), {"--output-filename", directory_ + "/logs"});
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(ReadFile(directory_ + "/logs/rank.1/stdout").value_or(""), "1\n");
}

TEST_P(LauncherMpirunTest, RankThatWasKilledIsTheLastLine) {
  const auto run = FailAsRank1("echo disk on fire >&2; kill -9 $$", "exec sleep 60");
  EXPECT_EQ(run->Finish(), 128 + SIGKILL);
  // Hydra reports the failed rank's host, but not the rank.
  EXPECT_THAT(run->LastLine(), MatchesRegex(IsOpenMpi() ? "rondarun: rank 1 \\(pid [0-9]+, host [^ ]+\\) was killed by "
                                                          "signal 9 \\(SIGKILL\\); last error: \"disk on fire\""
                                                        : "rondarun: a rank \\(host [^ ]+\\) was killed by signal 9 "
                                                          "\\(SIGKILL\\)"));
  EXPECT_THAT(run->err(), Not(HasSubstr("mpirun: ")));
}

TEST_P(LauncherMpirunTest, ExitCodeOfTheFirstRankThatFailedIsOurs) {
  // If a rank exits, MPICH's Hydra lets the other ranks continue.
  const auto run = FailAsRank1("echo out of data >&2; exit 3", "exit 0");
  EXPECT_EQ(run->Finish(), 3);
  EXPECT_THAT(
      run->LastLine(),
      MatchesRegex("rondarun: rank 1 \\(pid [0-9]+, host [^ ]+\\) exited with code 3; last error: \"out of data\""));
}

TEST_P(LauncherMpirunTest, RanksStartOnOtherHostsThroughTheAgent) {
  LauncherRun run(ScriptOnTwoHosts("echo $RANK $MY_SECRET"), Options());
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: 0 hidden", "[1]<stdout>: 1 hidden", "[2]<stdout>: 2 hidden"));
}

TEST_P(LauncherMpirunTest, HostThatDoesNotAnswerIsNamedAfterTheStartTimeout) {
  WriteScript("agent", absl::StrCat("[ $1 = b ] && { echo $$ > ", directory_,
                                    "/pid; exec sleep 600; }; shift; exec sh -c \"$*\""));
  std::vector<std::string> words = ScriptOnTwoHosts("exec sleep 600");
  words.insert(words.begin(), {"--start-timeout", "4"});
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 1);
  // Open MPI starts no rank before it has reached all hosts.
  EXPECT_THAT(run.LastLine(), StartsWith(IsOpenMpi() ? "rondarun: ranks 0, 1, 2 (hosts a, b) were not started "
                                                     : "rondarun: rank 2 (host b) was not started "));
  EXPECT_THAT(run.err(), HasSubstr("not all ranks have started; ending the job (killed in 7s)"));
  pid_t pid = 0;
  ASSERT_TRUE(std::ifstream(directory_ + "/pid") >> pid);
  WaitUntil([&] { return !IsRunning(pid); }, "the end of the agent");
}

TEST_P(LauncherMpirunTest, RanksWhoseOutputGoesElsewhereAreNotWaitedFor) {
  std::vector<std::string> words = OnThisHost(1, "sleep 0.6");
  const std::string elsewhere = IsOpenMpi() ? absl::StrCat("--output-filename ", directory_, "/own:nocopy")
                                            : absl::StrCat("-errfile-pattern ", directory_, "/own");
  words.insert(words.begin(), {"--start-timeout", "0.2", "--mpi-args", elsewhere});
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 0) << run.err();
}

TEST_P(LauncherMpirunTest, SilentProgramsAreSeenToStart) {
  std::vector<std::string> words = OnThisHost(2, "exec true");
  words.insert(words.begin(), "--verbose");
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rank 0 is pid "), HasSubstr("rank 1 is pid ")));
  EXPECT_EQ(run.out(), "");
}

TEST_P(LauncherMpirunTest, RanksHaveThePidThatTheLauncherTells) {
  std::vector<std::string> words = OnThisHost(1, "echo own=$$");
  words.insert(words.begin(), "--verbose");
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(NumberAfter(run.out(), "own="), NumberAfter(run.err(), "rank 0 is pid "));
}

TEST_P(LauncherMpirunTest, DryRunPrintsTheCommandWithoutSecretsAndStartsNothing) {
  std::vector<std::string> words = ScriptOnTwoHosts("echo started");
  words.insert(words.begin(), "--dry-run");
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 0);
  ASSERT_EQ(Lines(run.out()).size(), 1u);
  EXPECT_THAT(run.out(), HasSubstr(" mpirun "));
  EXPECT_THAT(run.out(), HasSubstr("MY_SECRET"));
  EXPECT_THAT(run.out(), Not(HasSubstr("hidden")));
  EXPECT_THAT(run.out(), HasSubstr("'RANK=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; echo started'"));
}

TEST_P(LauncherMpirunTest, MissingCommandIsNamed) {
  LauncherRun run({"-np", "2", "--mpi", "--grace-period", "0", "./no-such-command"}, Options());
  EXPECT_EQ(run.Finish(), 127);
  EXPECT_THAT(run.err(), HasSubstr("./no-such-command: not found"));
}

TEST_P(LauncherMpirunTest, UsersParametersReplaceTheLaunchers) {
  if (!IsOpenMpi()) GTEST_SKIP() << "parameters are Open MPI's";
  std::vector<std::string> words = OnThisHost(1, "echo ran");
  words.insert(words.begin(), {"--mpi-args", "--mca odls_base_sigkill_timeout 1"});
  LauncherRun run(words, Options());
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: ran\n");
}

TEST_P(LauncherMpirunTest, MpirunsOutputIsShownIfItAloneExplainsTheFailure) {
  LauncherRun run({"-np", "2", "--mpi", "--mpi-args", "--no-such-option", "true"}, Options());
  EXPECT_NE(run.Finish(), 0);
  EXPECT_THAT(run.err(), HasSubstr("rondarun: mpirun: "));
  EXPECT_THAT(run.err(), HasSubstr("no-such-option"));
}

TEST_P(LauncherMpirunTest, SignalsEndTheRanks) {
  for (const int signo : {SIGINT, SIGTERM}) {
    LauncherRun run(OnThisHost(2, "echo pid$RANK=$$; exec sleep 600"), Options());
    run.WaitForOut("pid0=");
    run.WaitForOut("pid1=");
    run.Signal(signo);
    EXPECT_EQ(run.Finish(), 128 + signo);
    for (const char* label : {"pid0=", "pid1="}) {
      const pid_t pid = NumberAfter(run.out(), label);
      WaitUntil([&] { return !IsRunning(pid); }, "the end of a rank");
    }
  }
}

// The files are not empty, because any other job that starts on this host removes empty ones.
TEST_P(LauncherMpirunTest, SharedMemoryThatRanksLeaveOnThisHostIsRemoved) {
  LauncherRun run(OnThisHost(2, "echo x > /dev/shm/ronda-$RONDA_JOB_ID-$RANK; ls /dev/shm/ronda-$RONDA_JOB_ID-$RANK"),
                  Options());
  EXPECT_EQ(run.Finish(), 0);
  const std::vector<std::string> lines = Lines(run.out());
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) {
    const std::string file = line.substr(line.find('/'));
    EXPECT_THAT(file, MatchesRegex("/dev/shm/ronda-[0-9a-f]+-[01]"));
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

TEST_P(LauncherMpirunTest, OpenMpisWarningAboutAProcessGroupIsNotShown) {
  const std::string warning = "[vm:7] plm:rsh: Warning: setpgid(8,8) failed in parent with errno=Permission denied(13)";
  WriteScript("mpirun", absl::StrCat("[ \"$1\" = --version ] || echo '", warning, "' >&2; exec /usr/bin/mpirun.",
                                     GetParam(), " \"$@\""));
  LauncherRun run(OnThisHost(2, "exit 3"), Options());
  EXPECT_EQ(run.Finish(), 3);
  EXPECT_THAT(run.err(), Not(HasSubstr("setpgid")));
}

TEST_P(LauncherMpirunTest, ProcessesEndWhenTheLauncherIsKilled) {
  LauncherRun run(OnThisHost(2, "echo pid$RANK=$$; exec sleep 600"), Options());
  run.WaitForOut("pid0=");
  run.WaitForOut("pid1=");
  run.Signal(SIGKILL);
  EXPECT_EQ(run.Finish(), -SIGKILL);
  for (const char* label : {"pid0=", "pid1="}) {
    const pid_t pid = NumberAfter(run.out(), label);
    WaitUntil([&] { return !IsRunning(pid); }, "the end of a rank");
  }
}

TEST(LauncherWithoutMpirunTest, MissingMpirunIsExplained) {
  LauncherRun run({"-np", "2", "--mpi", "true"}, {.environment = {"PATH=/nonexistent"}});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_THAT(run.err(), HasSubstr("need mpirun, and there is none in PATH"));
}

}  // namespace
}  // namespace ronda
