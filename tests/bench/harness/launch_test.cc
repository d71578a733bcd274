// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bench/harness/launch.h"

namespace ronda::bench {
namespace {

absl::StatusOr<std::optional<LaunchedRank>> Find(const std::map<std::string, std::string>& variables, int parent = 77) {
  return FindLaunchedRank(
      [&](const char* name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      },
      parent);
}

TEST(FindLaunchedRankTest, NoLauncherMeansNoRank) { EXPECT_EQ(*Find({{"HOME", "/root"}}), std::nullopt); }

TEST(FindLaunchedRankTest, RondarunNamesTheJob) {
  const auto launched = Find({{"RONDA_RANK", "1"}, {"RONDA_SIZE", "4"}, {"RONDA_JOB_ID", "abc"}});
  ASSERT_TRUE(launched.ok() && launched->has_value());
  EXPECT_EQ((*launched)->rank, 1);
  EXPECT_EQ((*launched)->size, 4);
  EXPECT_EQ((*launched)->job_id, "abc");
  EXPECT_EQ((*launched)->launcher, Launcher::kRondarun);
}

TEST(FindLaunchedRankTest, RanksOfAnMpiLauncherShareTheirParent) {
  const auto openmpi = Find({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  ASSERT_TRUE(openmpi.ok() && openmpi->has_value());
  EXPECT_EQ((*openmpi)->job_id, "bench-77");
  EXPECT_EQ((*openmpi)->launcher, Launcher::kOpenMpi);
  const auto mpich = Find({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}});
  ASSERT_TRUE(mpich.ok() && mpich->has_value());
  EXPECT_EQ((*mpich)->rank, 3);
  EXPECT_EQ((*mpich)->launcher, Launcher::kMpich);
}

TEST(FindLaunchedRankTest, RanksOnSeveralHostsOrWithABackendOfTheirOwnUseInitsRendezvous) {
  using Rendezvous = LaunchedRank::Rendezvous;
  std::map<std::string, std::string> variables = {
      {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  EXPECT_EQ((**Find(variables)).rendezvous, Rendezvous::kInMemory);
  variables["RONDA_BACKEND"] = "shm";
  EXPECT_EQ((**Find(variables)).rendezvous, Rendezvous::kInMemory);
  variables["RONDA_BACKEND"] = "mpi";
  EXPECT_EQ((**Find(variables)).rendezvous, Rendezvous::kAsInit);
  variables["RONDA_BACKEND"] = "tcp";
  EXPECT_EQ((**Find(variables)).rendezvous, Rendezvous::kAsInit);
  variables.erase("RONDA_BACKEND");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_EQ((**Find(variables)).rendezvous, Rendezvous::kAsInit);
  EXPECT_EQ((**Find({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}})).rendezvous, Rendezvous::kAsInit);
}

TEST(FindLaunchedRankTest, NonsenseFromALauncherIsAnError) {
  EXPECT_EQ(Find({{"RONDA_RANK", "x"}, {"RONDA_SIZE", "4"}}).status().message(),
            "RONDA_RANK=\"x\" is no number from 0 up");
  EXPECT_EQ(Find({{"PMI_RANK", "0"}}).status().message(), "PMI_SIZE=\"\" is no number from 0 up");
  EXPECT_EQ(Find({{"RONDA_RANK", "4"}, {"RONDA_SIZE", "4"}}).status().message(), "RONDA_RANK=4, but RONDA_SIZE=4");
}

// Removes the job's variables from the environment, so that later tests do not see them.
class DescribeJobToRondaTest : public testing::Test {
 protected:
  DescribeJobToRondaTest() { Clear(); }
  ~DescribeJobToRondaTest() override { Clear(); }

 private:
  static void Clear() {
    for (const char* name : {"RONDA_RANK", "RONDA_SIZE", "RONDA_JOB_ID"}) unsetenv(name);
  }
};

TEST_F(DescribeJobToRondaTest, KeepsTheLaunchersVariablesForInitsRendezvous) {
  DescribeJobToRonda({.rank = 2, .size = 3, .job_id = "job", .rendezvous = LaunchedRank::Rendezvous::kAsInit});
  EXPECT_EQ(ProcessVariables()("RONDA_RANK"), std::nullopt);
}

TEST_F(DescribeJobToRondaTest, SetsTheVariablesThatRondarunWouldHave) {
  DescribeJobToRonda({.rank = 2, .size = 3, .job_id = "job"});
  const ReadVariable variable = ProcessVariables();
  EXPECT_EQ(variable("RONDA_RANK"), "2");
  EXPECT_EQ(variable("RONDA_SIZE"), "3");
  EXPECT_EQ(variable("RONDA_JOB_ID"), "job");
  EXPECT_EQ(variable("RONDA_NO_SUCH_VARIABLE"), std::nullopt);
}

FindProgram Installed(std::set<std::string> programs) {
  return [programs = std::move(programs)](const std::string& name) {
    return programs.count(name) != 0 ? "/bin/" + name : std::string();
  };
}

std::string ValueOf(const LaunchCommand& command, const std::string& name) {
  for (const auto& [variable, value] : command.environment) {
    if (variable == name) return value;
  }
  return "";
}

TEST(PlanLaunchTest, RondarunGetsTheCommandAsItIs) {
  const auto plan = PlanLaunch({.launcher = Launcher::kRondarun, .ranks = 3, .command = {"bench", "-b", "4"}},
                               Installed({"rondarun"}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->words, (std::vector<std::string>{"/bin/rondarun", "-np", "3", "bench", "-b", "4"}));
  EXPECT_TRUE(plan->environment.empty());
}

TEST(PlanLaunchTest, OpenMpiMayHaveMoreRanksThanCores) {
  const auto plan = PlanLaunch({.launcher = Launcher::kOpenMpi, .ranks = 4, .command = {"bench"}, .user_id = 1000},
                               Installed({"mpirun.openmpi"}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->words, (std::vector<std::string>{"/bin/mpirun.openmpi", "-np", "4", "--oversubscribe", "bench"}));
  EXPECT_TRUE(plan->environment.empty());
}

TEST(PlanLaunchTest, RootAsksOpenMpiToRunAsRoot) {
  const auto plan =
      PlanLaunch({.launcher = Launcher::kOpenMpi, .command = {"bench"}, .user_id = 0}, Installed({"orterun"}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->words[0], "/bin/orterun");
  EXPECT_EQ(ValueOf(*plan, "OMPI_ALLOW_RUN_AS_ROOT"), "1");
  EXPECT_EQ(ValueOf(*plan, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1");
}

TEST(PlanLaunchTest, TheBestSettingCopiesInUserSpaceAndKeepsMemory) {
  const LaunchRequest request = {
      .launcher = Launcher::kOpenMpi, .setting = PeerSetting::kBest, .command = {"bench"}, .user_id = 1000};
  const auto plan = PlanLaunch(request, Installed({"mpirun.openmpi"}));
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(ValueOf(*plan, "OMPI_MCA_btl_vader_single_copy_mechanism"), "none");
  EXPECT_FALSE(ValueOf(*plan, "MALLOC_MMAP_THRESHOLD_").empty());
}

TEST(PlanLaunchTest, ALauncherThatIsMissingIsNamedWithItsPackage) {
  const FindProgram nothing = Installed({});
  EXPECT_EQ(PlanLaunch({.launcher = Launcher::kOpenMpi}, nothing).status().message(),
            "mpirun.openmpi is not here: install Debian's openmpi-bin");
  EXPECT_EQ(PlanLaunch({.launcher = Launcher::kMpich}, nothing).status().message(),
            "mpiexec.hydra is not here: install Debian's mpich");
  EXPECT_FALSE(PlanLaunch({.launcher = Launcher::kRondarun}, nothing).ok());
}

TEST(FindInstalledProgramTest, LooksInThePath) {
  EXPECT_EQ(FindInstalledProgram()("no-such-program-at-all"), "");
  EXPECT_NE(FindInstalledProgram()("sh"), "");
}

// The job writes its output to the pipe that RONDA_BENCH_OUTPUT names.
TEST(RunLaunchTest, HandsOnMessagesAndTheExitCode) {
  std::vector<OutputMessage> messages;
  const LaunchCommand command = {
      .words = {"/bin/sh", "-c", "printf 'T one\\nP 0.5 half\\nT '\"$WORD\"'\\n' > $RONDA_BENCH_OUTPUT; exit 3"},
      .environment = {{"WORD", "two"}}};
  const absl::StatusOr<int> exit_code =
      RunLaunch(command, [&](const OutputMessage& message) { messages.push_back(message); });
  ASSERT_TRUE(exit_code.ok());
  EXPECT_EQ(*exit_code, 3);
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[0].text, "one\n");
  EXPECT_EQ(messages[1].fraction, 0.5);
  EXPECT_EQ(messages[2].text, "two\n");
}

TEST(ShowLaunchTest, PrintsTextAndHandsOnResults) {
  std::vector<std::string> rows;
  testing::internal::CaptureStdout();
  const auto exit_code =
      ShowLaunch({.words = {"/bin/sh", "-c", "printf 'T text\\nP 0.5 half\\nR {}\\n' > $RONDA_BENCH_OUTPUT"}},
                 [&](const OutputMessage& message) { rows.push_back(message.text); });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "text\n");
  EXPECT_EQ(*exit_code, 0);
  EXPECT_EQ(rows, std::vector<std::string>{"{}"});
}

TEST(RunLaunchTest, OutputGoesToTheFileThatTheCommandNames) {
  const std::string file = testing::TempDir() + "/output";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto exit_code = RunLaunch({.words = {"/bin/sh", "-c", "echo out; echo err >&2"}, .output_file = file},
                                   [](const OutputMessage&) {});
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(*exit_code, 0);
  EXPECT_EQ(LastLines(file), "out\nerr\n");
  EXPECT_EQ(*RunLaunch({.words = {"/no/such/program"}, .output_file = file}, [](const OutputMessage&) {}), 127);
  EXPECT_EQ(LastLines(file), "ronda-bench: cannot run /no/such/program: No such file or directory\n");
}

TEST(LastLinesTest, LongTextBeginsWithAWholeLine) {
  const std::string file = testing::TempDir() + "/long";
  std::ofstream(file) << std::string(3000, 'a') << '\n'
                      << std::string(600, 'b') << '\n'
                      << std::string(200, 'c') << '\n';
  EXPECT_EQ(LastLines(file), std::string(600, 'b') + '\n' + std::string(200, 'c') + '\n');
  std::ofstream(file) << std::string(3000, 'a') << '\n';
  EXPECT_EQ(LastLines(file), std::string(999, 'a') + '\n') << "a line that is too long";
  EXPECT_EQ(LastLines("/no/such/file"), "");
}

TEST(RunLaunchTest, ASignalIsAnExitCodeToo) {
  const auto exit_code = RunLaunch({.words = {"/bin/sh", "-c", "kill -TERM $$"}}, [](const OutputMessage&) {});
  EXPECT_EQ(*exit_code, 128 + 15);
}

TEST(RunLaunchTest, TheCommandEndsWithThisProcess) {
  int started[2];
  ASSERT_EQ(pipe(started), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    close(started[0]);
    static_cast<void>(RunLaunch({.words = {"/bin/sh", "-c", "echo 'T up' > $RONDA_BENCH_OUTPUT; exec sleep 600"}},
                                [&](const OutputMessage&) { static_cast<void>(!write(started[1], "!", 1)); }));
    _exit(0);
  }
  close(started[1]);
  char byte = 0;
  ASSERT_EQ(read(started[0], &byte, 1), 1);
  kill(launcher, SIGKILL);
  ASSERT_EQ(waitpid(launcher, nullptr, 0), launcher);
  // `sleep` also holds the write end of the pipe, so read() reports end-of-file only when `sleep` has ended.
  EXPECT_EQ(read(started[0], &byte, 1), 0);
  close(started[0]);
}

TEST(RunLaunchTest, AProgramThatCannotRunIsNotFound) {
  EXPECT_EQ(*RunLaunch({.words = {"/no/such/program"}}, [](const OutputMessage&) {}), 127);
}

}  // namespace
}  // namespace ronda::bench
