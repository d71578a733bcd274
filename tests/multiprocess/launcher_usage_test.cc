// SPDX-License-Identifier: Apache-2.0

// Tests how rondarun reacts to its command line, and what environment its ranks get.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

struct BadCall {
  Words arguments;
  std::string message;  // the beginning of the first line on stderr
};

class BadCallTest : public ::testing::TestWithParam<BadCall> {};

TEST_P(BadCallTest, ExitsWithTwoAndSaysWhatIsRight) {
  LauncherRun run(GetParam().arguments);
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_EQ(run.out(), "");
  EXPECT_THAT(run.err(), StartsWith("rondarun: " + GetParam().message));
  EXPECT_THAT(run.err(), HasSubstr("usage: rondarun -np N"));
}

INSTANTIATE_TEST_SUITE_P(All, BadCallTest,
                         ::testing::Values(BadCall{{}, "-np is missing"}, BadCall{{"true"}, "-np is missing"},
                                           BadCall{{"-np", "2"}, "the command is missing"},
                                           BadCall{{"-np", "0", "true"},
                                                   "-np takes a number of ranks from 1 to 1048576, for example -np 4;"},
                                           BadCall{{"-np", "x", "true"},
                                                   "-np takes a number of ranks from 1 to 1048576, for example -np 4;"},
                                           BadCall{{"--frobnicate", "true"}, "unknown option \"--frobnicate\""},
                                           BadCall{{"-np", "2", "-H", "localhost", "true"}, "-H takes HOST:SLOTS"},
                                           BadCall{{"-np", "4", "-H", "localhost:2", "true"},
                                                   "-np 4 needs 4 slots, and -H offers 2"}));

TEST(LauncherUsageTest, QuestionsAreAnsweredOnStdout) {
  LauncherRun help({"--help"});
  EXPECT_EQ(help.Finish(), 0);
  EXPECT_THAT(help.out(), StartsWith("usage: rondarun -np N"));
  LauncherRun version({"--version"});
  EXPECT_EQ(version.Finish(), 0);
  EXPECT_THAT(version.out(), MatchesRegex("rondarun [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  LauncherRun build({"--check-build"});
  EXPECT_EQ(build.Finish(), 0);
  EXPECT_THAT(build.out(),
              AllOf(HasSubstr("[X] self"), HasSubstr("[X] inprocess"), HasSubstr("[X] shm"), HasSubstr("[X] rondarun"),
                    HasSubstr("] mpi  "), HasSubstr("] nccl  "), HasSubstr("[X] staged"), HasSubstr("] cuda  ")));
}

TEST(LauncherUsageTest, CheckLooksAtThisHost) {
  LauncherRun run({"--check"});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.out(), MatchesRegex("host +Ronda .*\nlocalhost +[0-9.]+ (.|\n)*this host can run a job\n"));
}

TEST(LauncherUsageTest, MissingCommandIsReportedOnce) {
  LauncherRun run({"-np", "4", "./no-such-command"});
  EXPECT_EQ(run.Finish(), 127);
  EXPECT_EQ(run.err(), "rondarun: command not found: ./no-such-command\n");
  LauncherRun in_path({"-np", "4", "no-such-command"});
  EXPECT_EQ(in_path.Finish(), 127);
  EXPECT_EQ(in_path.err(), "rondarun: command not found: no-such-command (in no directory of PATH)\n");
}

class CommandFileTest : public ::testing::Test {
 protected:
  // Returns a PATH without the current folder, which the PATH of tests contains.
  static LauncherRun::Options UsualPath() { return {.environment = {"PATH=/usr/bin:/bin"}}; }

  std::string Make(const std::string& content, int mode, const std::string& name = "command") {
    const std::string path = absl::StrCat(::testing::TempDir(), "/", name);
    std::ofstream(path) << content;
    std::filesystem::permissions(path, static_cast<std::filesystem::perms>(mode));
    return path;
  }
};

TEST_F(CommandFileTest, FileThatIsNotExecutableIsReportedOnce) {
  const std::string path = Make("hello", 0644);
  LauncherRun run({"-np", "4", path});
  EXPECT_EQ(run.Finish(), 126);
  EXPECT_EQ(run.err(), "rondarun: command is not executable: " + path + "; make it so: chmod +x " + path + "\n");
}

// The error shows the right command on one line, for the user to copy.
TEST_F(CommandFileTest, ScriptOfPythonThatIsNoCommandIsGivenAnInterpreter) {
  const std::string path = Make("print('hello')\n", 0644, "train.py");
  LauncherRun not_executable({"-np", "2", path, "--lr", "0.1 0.2"});
  EXPECT_EQ(not_executable.Finish(), 126);
  EXPECT_EQ(not_executable.err(), "rondarun: command is not executable: " + path + "; write: rondarun -np 2 python3 " +
                                      path + " --lr '0.1 0.2'\n");

  const std::string launcher = std::filesystem::absolute("programs/rondarun/rondarun");
  const std::string go_there = "cd " + ::testing::TempDir() + " && exec " + launcher;
  LauncherRun not_in_path({"-np", "1", "sh", "-c", go_there + " -np 2 -x API_KEY=hush train.py"}, UsualPath());
  EXPECT_EQ(not_in_path.Finish(), 127);
  EXPECT_THAT(not_in_path.err(),
              HasSubstr("rondarun: command not found: train.py (the file in this directory is not in PATH); write: "
                        "rondarun -np 2 -x API_KEY=... python3 train.py\n"));
  EXPECT_THAT(not_in_path.err(), Not(HasSubstr("hush")));

  Make("print('hello')\n", 0755, "train.py");
  LauncherRun without_interpreter({"-np", "1", path});
  EXPECT_EQ(without_interpreter.Finish(), 126);
  EXPECT_EQ(without_interpreter.err(), "rondarun: command is not executable: " + path +
                                           " (it does not begin with #! and the name of an interpreter); write: "
                                           "rondarun -np 1 python3 " +
                                           path + "\n");
}

TEST_F(CommandFileTest, ProgramInThisDirectoryIsNamedByItsPath) {
  Make("#!/bin/sh\n", 0755, "program");
  const std::string launcher = std::filesystem::absolute("programs/rondarun/rondarun");
  LauncherRun run({"-np", "1", "sh", "-c", "cd " + ::testing::TempDir() + " && exec " + launcher + " -np 2 program"},
                  UsualPath());
  EXPECT_EQ(run.Finish(), 127);
  EXPECT_THAT(run.err(), HasSubstr("write: rondarun -np 2 ./program\n"));
}

TEST_F(CommandFileTest, CarriageReturnInTheFirstLineIsSaid) {
  for (const char* line : {"#!/usr/bin/python3", "#!/usr/bin/env python3"}) {
    const std::string path = Make(absl::StrCat(line, "\r\nprint('hello')\r\n"), 0755);
    LauncherRun run({"-np", "2", path});
    EXPECT_EQ(run.Finish(), 127);
    EXPECT_EQ(run.err(), absl::StrCat("rondarun: command not found: ", path, " (its first line, ", line,
                                      ", ends with a carriage return, which editors do not show, and no interpreter "
                                      "has such a name); remove the carriage returns: sed -i 's/\\r$//' ",
                                      path, "\n"));
  }
}

TEST_F(CommandFileTest, MissingInterpreterIsToldFromMissingFile) {
  const std::string path = Make("#!/no/such/interpreter\n", 0755);
  LauncherRun run({"-np", "1", path});
  EXPECT_EQ(run.Finish(), 127);
  EXPECT_THAT(run.err(), HasSubstr("the file exists, but not the interpreter it asks for: /no/such/interpreter)"));
}

TEST_F(CommandFileTest, DirectoryIsNoCommand) {
  LauncherRun run({"-np", "1", "/tmp"});
  EXPECT_EQ(run.Finish(), 126);
  EXPECT_EQ(run.err(), "rondarun: command is not executable: /tmp (it is a directory)\n");
}

TEST(LauncherUsageTest, OutputDirectoryThatCannotBeMadeIsNamed) {
  LauncherRun run({"-np", "1", "--output-filename", "/dev/null/logs", "true"});
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.err(), HasSubstr("cannot create /dev/null/logs/rank.0"));
}

TEST(LauncherUsageTest, DryRunPrintsALineForEachRankAndStartsNothing) {
  LauncherRun run({"--dry-run", "-np", "2", "./no-such-command", "two words"});
  EXPECT_EQ(run.Finish(), 0);
  const std::vector<std::string> lines = Lines(run.out());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[1], HasSubstr("RONDA_RANK=1 RONDA_SIZE=2 "));
  EXPECT_THAT(lines[1], HasSubstr("RONDA_JOB_SECRET=... "));
  EXPECT_THAT(lines[1], ::testing::EndsWith(" ./no-such-command 'two words'"));
}

TEST(LauncherUsageTest, RanksOfANodeAreNumberedWithinTheJob) {
  LauncherRun run(
      {"--nnodes", "3", "--node-rank", "1", "--nproc-per-node", "2", "--master-addr", "10.0.0.7", "sh", "-c",
       "echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $RONDA_MASTER_ADDR "
       "$RONDA_MASTER_PORT $RONDA_JOB_SECRET"},
      {.environment = {"RONDA_JOB_SECRET=f00d"}});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(),
              ElementsAre("[2]<stdout>: 2/6 0 1 10.0.0.7 29500 f00d", "[3]<stdout>: 3/6 1 1 10.0.0.7 29500 f00d"));
}

TEST(LauncherUsageTest, NodesWithoutASecretAreToldHowToMakeOne) {
  LauncherRun run({"--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.7", "true"},
                  {.unset = {"RONDA_JOB_SECRET"}});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_THAT(run.err(), StartsWith("rondarun: RONDA_JOB_SECRET is not set"));
}

TEST(LauncherUsageTest, RanksSeeTheDevicesGiven) {
  LauncherRun run({"--gpus", "2,3", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: 2,3", "[1]<stdout>: 2,3"));
}

TEST(LauncherUsageTest, InterfaceThatThisHostHasNotIsRefusedWithThoseThatItHas) {
  LauncherRun run({"-np", "2", "--network-interfaces", "no-such0", "true"});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_THAT(run.err(), AllOf(StartsWith("rondarun: --network-interfaces no-such0: this host has no such interface"),
                               HasSubstr("there are lo (127.0.0.1)")));
}

TEST(LauncherUsageTest, MoreRanksThanCoresAreNotBoundToOneEach) {
  LauncherRun run({"--binding", "core", "-np", "1024", "true"});
  EXPECT_EQ(run.Finish(), 2);
  EXPECT_THAT(run.err(), StartsWith("rondarun: --binding core: 1024 ranks on this host, and it has "));
}

TEST(LauncherUsageTest, HorovodsVariablesAreTakenAndItsGlooIsNoted) {
  LauncherRun run({"-np", "1", "--gloo", "sh", "-c", "echo $RONDA_CYCLE_TIME $RONDA_FUSION_THRESHOLD"},
                  {.environment = {"HOROVOD_CYCLE_TIME=3", "HOROVOD_FUSION_THRESHOLD=1048576", "HOROVOD_CCL_CACHE=1"}});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: 3ms 1MiB\n");
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rondarun: --gloo has no effect: "),
                               HasSubstr("rondarun: HOROVOD_CCL_CACHE has no effect: ")));
}

TEST(LauncherUsageTest, BoundRanksRunOnCoresOfTheirOwn) {
  LauncherRun bound({"--binding", "core", "-np", "1", "sh", "-c", "echo cpus=$(nproc)"});
  EXPECT_EQ(bound.Finish(), 0);
  LauncherRun free({"-np", "1", "sh", "-c", "echo cpus=$(nproc)"});
  EXPECT_EQ(free.Finish(), 0);
  const int all = NumberAfter(free.out(), "cpus=");
  EXPECT_GE(NumberAfter(bound.out(), "cpus="), 1);
  // One or two CPUs may be the hardware threads of a single core, so that a rank bound to this core can use all CPUs.
  if (all > 2) {
    EXPECT_LT(NumberAfter(bound.out(), "cpus="), all);
  }
}

TEST(LauncherUsageTest, EightRanksLearnTheirPlaces) {
  LauncherRun run(
      Shell(8,
            "echo $RONDA_RANK/$RONDA_SIZE $RONDA_LOCAL_RANK/$RONDA_LOCAL_SIZE "
            "$RONDA_CROSS_RANK/$RONDA_CROSS_SIZE, $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK $HOROVOD_RANK"));
  EXPECT_EQ(run.Finish(), 0);
  Words expected;
  for (int rank = 0; rank < 8; ++rank) {
    const std::string in_other_words = absl::StrCat(", ", rank, "/8 ", rank, " 0 ", rank);
    expected.push_back(absl::StrCat("[", rank, "]<stdout>: ", rank, "/8 ", rank, "/8 0/1", in_other_words));
  }
  EXPECT_EQ(run.SortedOut(), expected);
}

TEST(LauncherUsageTest, ThisHostMayBeNamed) {
  LauncherRun run({"--num-proc=2", "-H", "localhost:4", "--", "echo", "hello"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: hello", "[1]<stdout>: hello"));
}

// Both host names in Slurm's list mean this host.
TEST(LauncherUsageTest, SchedulersAllocationSaysTheHostsAndTheRanks) {
  const std::vector<std::string> slurm = {"SLURM_JOB_NODELIST=localhost,127.0.0.1", "SLURM_TASKS_PER_NODE=2,1"};
  LauncherRun run({"sh", "-c", "echo $RANK of $WORLD_SIZE, host $GROUP_RANK"}, {.environment = slurm});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.SortedOut(),
              ElementsAre("[0]<stdout>: 0 of 3, host 0", "[1]<stdout>: 1 of 3, host 0", "[2]<stdout>: 2 of 3, host 1"));
  EXPECT_EQ(run.err(),
            "rondarun: the hosts are those of Slurm's allocation (SLURM_JOB_NODELIST): localhost:2,127.0.0.1:1; -H or "
            "--hostfile names others\n");
}

TEST(LauncherUsageTest, JobIdAndSecretAreSharedByAJobAndNewForTheNext) {
  std::set<std::string> seen;
  for (int job = 0; job < 2; ++job) {
    LauncherRun run(Shell(2, "echo $RONDA_JOB_ID $RONDA_JOB_SECRET"));
    EXPECT_EQ(run.Finish(), 0);
    for (const std::string& line : Lines(run.out())) {
      EXPECT_THAT(line, MatchesRegex("\\[[01]\\]<stdout>: [0-9a-f]{32} [0-9a-f]{64}"));
      seen.insert(line.substr(line.find(' ')));
    }
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(LauncherUsageTest, VerboseTellsTheStoryButNotTheSecret) {
  Words arguments = Shell(2, "echo secret=$RONDA_JOB_SECRET; exit 0");
  arguments.insert(arguments.begin(), "--verbose");
  LauncherRun run(arguments, {.unset = {"OMP_NUM_THREADS"}});
  EXPECT_EQ(run.Finish(), 0);
  const std::string label = "secret=";
  const std::string secret = run.out().substr(run.out().find(label) + label.size(), 64);
  EXPECT_THAT(run.err(), AllOf(HasSubstr("rondarun: rank 0 is pid "), HasSubstr("rondarun: rank 1 is pid "),
                               HasSubstr("OMP_NUM_THREADS=1"), HasSubstr(") exited with code 0 after ")));
  EXPECT_THAT(run.err(), Not(HasSubstr(secret)));
}

TEST(LauncherUsageTest, OmpThreadsDefaultToOneOnlyIfRanksShareTheHost) {
  LauncherRun several(Shell(2, "echo threads=$OMP_NUM_THREADS"), {.unset = {"OMP_NUM_THREADS"}});
  several.WaitForOut("threads=1\n", 2);
  EXPECT_EQ(several.Finish(), 0);
  EXPECT_THAT(several.err(), MatchesRegex("rondarun: OMP_NUM_THREADS is not set: each rank gets [^\n]*\n"));
  LauncherRun one(Shell(1, "echo threads=$OMP_NUM_THREADS"), {.unset = {"OMP_NUM_THREADS"}});
  one.WaitForOut("threads=\n");
  EXPECT_EQ(one.Finish(), 0);
  EXPECT_EQ(one.err(), "");
  LauncherRun chosen(Shell(2, "echo threads=$OMP_NUM_THREADS"), {.environment = {"OMP_NUM_THREADS=3"}});
  chosen.WaitForOut("threads=3\n", 2);
  EXPECT_EQ(chosen.Finish(), 0);
  EXPECT_EQ(chosen.err(), "");
}

TEST(LauncherUsageTest, DefaultsAreToldOnceAndNotWithEachRestart) {
  LauncherRun run({"--max-restarts", "2", "-np", "2", "sh", "-c", "exit 3"}, {.unset = {"OMP_NUM_THREADS"}});
  EXPECT_EQ(run.Finish(), 3);
  const std::string note = "OMP_NUM_THREADS is not set";
  EXPECT_NE(run.err().find(note), std::string::npos);
  EXPECT_EQ(run.err().find(note), run.err().rfind(note));
}

// rondarun sets PYTHONUNBUFFERED, because Python otherwise buffers output to a pipe.
TEST(LauncherUsageTest, LastPrintOfAPythonRankThatIsKilledIsShown) {
  LauncherRun run({"-np", "1", "/usr/bin/python3", "-c",
                   "import os, signal; print('last print'); os.kill(os.getpid(), signal.SIGKILL)"},
                  {.unset = {"PYTHONUNBUFFERED"}});
  EXPECT_EQ(run.Finish(), 128 + SIGKILL);
  EXPECT_EQ(run.out(), "[0]<stdout>: last print\n");
}

TEST(LauncherUsageTest, StartTimeoutReachesTheRanks) {
  LauncherRun run({"--start-timeout", "7", "-np", "1", "sh", "-c", "echo $RONDA_START_TIMEOUT"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: 7s\n");
}

TEST(LauncherUsageTest, AutotuneReachesTheRanks) {
  LauncherRun run({"--autotune", "--autotune-log-file", "t.csv", "-np", "1", "sh", "-c",
                   "echo $RONDA_AUTOTUNE $RONDA_AUTOTUNE_LOG"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: 1 t.csv\n");
}

TEST(LauncherUsageTest, LauncherStartedByARankIsAJobOfItsOwn) {
  LauncherRun run({"-np", "2", "sh", "-c",
                   "if [ $RONDA_RANK = 1 ]; then outer=$RONDA_JOB_ID programs/rondarun/rondarun -np 3 sh -c "
                   "'echo inner $RANK/$WORLD_SIZE; [ $RONDA_JOB_ID != $outer ]'; fi"});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.SortedOut(), ElementsAre("[1]<stdout>: [0]<stdout>: inner 0/3", "[1]<stdout>: [1]<stdout>: inner 1/3",
                                           "[1]<stdout>: [2]<stdout>: inner 2/3"));
}

TEST(LauncherUsageTest, RanksGetNoDescriptorsButTheStandardOnesAndOneForTheirError) {
  const auto leak = [] { dup2(STDERR_FILENO, 77); };
  LauncherRun run(Shell(2,
                        "fd=3; while [ $fd -lt 100 ]; do [ ! -e /proc/$$/fd/$fd ] || readlink /proc/$$/fd/$fd; "
                        "fd=$((fd + 1)); done"),
                  {.in_child = leak});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run.SortedOut(), ElementsAre("[0]<stdout>: /memfd:ronda-error (deleted)",  // ErrorFile
                                           "[1]<stdout>: /memfd:ronda-error (deleted)"));
}

TEST(LauncherUsageTest, LauncherWithoutStandardStreamsStillWorks) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/ran.", getpid());
  LauncherRun run(Shell(1, "echo to nobody; echo done > " + path), {.in_child = [] {
                    for (int fd = 0; fd < 3; ++fd) close(fd);
                  }});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(LauncherUsageTest, OnlyRankZeroReadsTheInput) {
  LauncherRun run(Shell(2, "cat"), {.input = "one\ntwo\n"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(run.out(), "[0]<stdout>: one\n[0]<stdout>: two\n");
}

}  // namespace
}  // namespace ronda
