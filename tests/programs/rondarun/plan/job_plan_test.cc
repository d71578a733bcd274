// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/job_plan.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

LaunchFacts Facts() {
  return {.hostname = "head",
          .own_addresses = {"head.cluster", "10.0.0.1"},
          .program = "/bin/rondarun",
          .environment = {"PATH=/bin", "RONDA_JOB_SECRET=inherited"},
          .interfaces = {{.interface = "lo", .address = "127.0.0.1"}, {.interface = "eth0", .address = "10.0.0.1"}},
          .job_id = "cafe",
          .job_secret = "f00d"};
}

LaunchOptions Options(int rank_count) {
  LaunchOptions options;
  options.rank_count = rank_count;
  options.command = {"./train", "two words"};
  return options;
}

JobPlan Planned(const LaunchOptions& options) {
  auto plan = MakeJobPlan(options, Facts());
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : JobPlan{};
}

TEST(JobPlannerTest, RanksOfThisHostAreItsOwnProcesses) {
  const JobPlan plan = Planned(Options(2));
  EXPECT_EQ(plan.parts.size(), 2u);
  EXPECT_EQ(plan.job_id, "cafe");
  EXPECT_EQ(plan.rank_count, 2);
  EXPECT_THAT(plan.ranks, ElementsAre(0, 1));
  EXPECT_THAT(plan.commands[1],
              AllOf(HasSubstr("RONDA_RANK=1 "), HasSubstr(" ./train 'two words'"), Not(HasSubstr("PATH"))));
}

TEST(JobPlannerTest, MembersOfAnElasticJobAreMadeAsTheyAreNeeded) {
  LaunchOptions options = Options(2);
  options.elastic = ElasticOptions{.min_ranks = 1, .max_ranks = 4, .reset_limit = 7};
  const JobPlan plan = Planned(options);
  EXPECT_TRUE(plan.parts.empty());
  EXPECT_THAT(plan.ranks, ElementsAre(0, 1));
  ASSERT_TRUE(plan.elastic.has_value());
  EXPECT_EQ(plan.elastic->membership.initial_members, 2);
  EXPECT_EQ(plan.elastic->membership.max_members, 4);
  EXPECT_EQ(plan.elastic->membership.reset_limit, 7);
  EXPECT_NE(plan.elastic->make_member({.member = 17, .slot = 3, .slots = 4}, 5), nullptr);
  ASSERT_EQ(plan.elastic->membership.hosts.size(), 1);
  EXPECT_EQ(plan.elastic->membership.hosts[0].slots, 4);
  // Members have less time to meet (10 s) than to start (30 s).
  EXPECT_EQ(plan.elastic->membership.start_timeout, absl::Seconds(30));
  EXPECT_THAT(plan.commands[1], HasSubstr("RONDA_START_TIMEOUT=10s "));
  options.settings["RONDA_START_TIMEOUT"] = "2s";
  EXPECT_EQ(Planned(options).elastic->membership.start_timeout, absl::Seconds(2));
  EXPECT_THAT(Planned(options).commands[1], HasSubstr("RONDA_START_TIMEOUT=2s "));
  // A member's local rank is its slot number, among all slots that the job may use.
  EXPECT_THAT(plan.commands[1], AllOf(HasSubstr("RONDA_LOCAL_RANK=1 "), HasSubstr("RONDA_LOCAL_SIZE=4 ")));
  EXPECT_THAT(plan.commands[1], Not(HasSubstr(" WORLD_SIZE=")));
}

TEST(JobPlannerTest, MonitorIsAPartThatDoesNotCarryTheJob) {
  LaunchOptions options = Options(2);
  options.monitor_port = 9464;
  LaunchFacts facts = Facts();
  facts.monitor = "/bin/ronda-monitor";
  const auto plan = MakeJobPlan(options, facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->parts.size(), 3u);
  EXPECT_TRUE(plan->parts[0]->carries_job());
  EXPECT_FALSE(plan->parts[2]->carries_job());
  EXPECT_EQ(plan->commands.back(), "/bin/ronda-monitor --wait --port 9464 cafe");
}

TEST(JobPlannerTest, SecretsAreNotShown) {
  const JobPlan plan = Planned(Options(1));
  EXPECT_THAT(plan.commands[0], AllOf(HasSubstr("RONDA_JOB_SECRET=..."), Not(HasSubstr("f00d"))));
}

TEST(JobPlannerTest, OtherNamesOfThisHostNeedNoMpirun) {
  LaunchOptions options = Options(3);
  options.hosts = {{"head", 1}, {"10.0.0.1", 1}, {"localhost", 1}};
  EXPECT_EQ(Planned(options).parts.size(), 3u);
}

TEST(JobPlannerTest, DevicesAreForAllRanks) {
  LaunchOptions options = Options(2);
  options.devices = {2, 3};
  for (const std::string& command : Planned(options).commands) {
    EXPECT_THAT(command, HasSubstr("CUDA_VISIBLE_DEVICES=2,3 "));
  }
}

TEST(JobPlannerTest, RanksOfANodeAreAPartOfTheJob) {
  LaunchOptions options = Options(2);
  options.nodes = NodeGroup{.nodes = 2, .node_rank = 1, .master_address = "10.0.0.1"};
  const JobPlan plan = Planned(options);
  EXPECT_EQ(plan.job_id, "");
  EXPECT_EQ(plan.rank_count, 4);
  EXPECT_THAT(plan.ranks, ElementsAre(2, 3));
  EXPECT_THAT(plan.commands[0], HasSubstr("RONDA_RANK=2 RONDA_SIZE=4 "));
}

TEST(JobPlannerTest, AgentsAreStartedOverSsh) {
  LaunchOptions options = Options(2);
  options.hosts = {{"alpha", 1}, {"beta", 1}};
  options.launcher = LaunchOptions::Launcher::kSsh;
  const JobPlan plan = Planned(options);
  EXPECT_EQ(plan.parts.size(), 2u);
  EXPECT_THAT(plan.commands, ::testing::Each(StartsWith("ssh ")));
}

TEST(JobPlannerTest, RanksOfThisHostShareAPortForAStore) {
  LaunchFacts facts = Facts();
  facts.store_port = 4712;
  const auto plan = MakeJobPlan(Options(2), facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->commands, ::testing::Each(HasSubstr(" MASTER_ADDR=127.0.0.1 MASTER_PORT=4712 ")));
}

TEST(JobPlannerTest, RanksOfThisHostHaveNoStartTimeout) {
  EXPECT_EQ(Planned(Options(2)).start_timeout, absl::InfiniteDuration());
}

// Returns options for two ranks that mpirun starts on two other hosts.
LaunchOptions MpirunOptions(const std::vector<std::string>& interfaces) {
  LaunchOptions options = Options(2);
  options.hosts = {{"alpha", 1}, {"beta", 1}};
  options.launcher = LaunchOptions::Launcher::kMpirun;
  options.remote.network_interfaces = interfaces;
  return options;
}

TEST(JobPlannerTest, MpirunNeedsOneOfTheInterfacesOnThisHost) {
  const auto plan = MakeJobPlan(MpirunOptions({"ib0", "ib1"}), Facts());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()),
              AllOf(StartsWith("--network-interfaces ib0,ib1: this machine, "),
                    HasSubstr("none of these interfaces, or they are down; there are lo (127.0.0.1), eth0 (10.0.0.1)"),
                    HasSubstr("oob_tcp_if_include")));
}

// Checks only one kind of error, because the rest of the plan depends on whether this machine has an mpirun.
TEST(JobPlannerTest, InterfacesThatMpirunCanUseAreAccepted) {
  LaunchOptions network_given = MpirunOptions({"ib0"});
  network_given.remote.mpi_arguments = {"--mca", "oob_tcp_if_include", "10.0.0.0/24"};
  for (const LaunchOptions& options : {MpirunOptions({}), MpirunOptions({"ib0", "eth0"}), network_given}) {
    EXPECT_THAT(std::string(MakeJobPlan(options, Facts()).status().message()), Not(HasSubstr("--network-interfaces")));
  }
}

TEST(JobPlannerTest, RanksOfThisHostNeedOneOfTheInterfaces) {
  LaunchOptions elastic = Options(2);
  elastic.elastic = ElasticOptions{.min_ranks = 1, .max_ranks = 2};
  LaunchOptions node = Options(2);
  node.nodes = NodeGroup();
  LaunchOptions by_ssh = Options(2);
  by_ssh.hosts = {{"head", 1}, {"beta", 1}};
  by_ssh.launcher = LaunchOptions::Launcher::kSsh;
  for (LaunchOptions options : {Options(2), elastic, node, by_ssh}) {
    options.remote.network_interfaces = {"eth9"};
    EXPECT_EQ(std::string(MakeJobPlan(options, Facts()).status().message()),
              "--network-interfaces eth9: this host has no such interface that is up; there are lo (127.0.0.1), eth0 "
              "(10.0.0.1); name one of them");
    options.remote.network_interfaces = {"eth9", "eth0"};
    EXPECT_TRUE(MakeJobPlan(options, Facts()).ok());
  }
  // The plan does not check the interfaces of other hosts, whose agents report a missing interface.
  by_ssh.hosts = {{"alpha", 1}, {"beta", 1}};
  by_ssh.remote.network_interfaces = {"eth9"};
  EXPECT_TRUE(MakeJobPlan(by_ssh, Facts()).ok());
}

TEST(JobPlannerTest, RanksOfThisHostFitOnItsCoresIfEachIsToHaveOne) {
  LaunchFacts facts = Facts();
  facts.cores = {.nodes = {{{0}, {1}}}};
  LaunchOptions options = Options(3);
  options.binding = LaunchOptions::Binding::kCore;
  LaunchOptions elastic = options;
  elastic.rank_count = 2;
  elastic.elastic = ElasticOptions{.min_ranks = 1, .max_ranks = 3};
  for (const LaunchOptions& too_many : {options, elastic}) {
    EXPECT_THAT(std::string(MakeJobPlan(too_many, facts).status().message()),
                StartsWith("--binding core: 3 ranks on this host, and it has 2 cores"));
  }
  options.rank_count = 2;
  EXPECT_TRUE(MakeJobPlan(options, facts).ok());
}

TEST(JobPlannerTest, RanksAreNotStartedByAShellThatWouldDropVariables) {
  LaunchFacts facts = Facts();
  auto plan = MakeJobPlan(MpirunOptions({}), facts);
  if (!plan.ok()) GTEST_SKIP() << plan.status().message();
  EXPECT_THAT(plan->commands, ::testing::Contains(HasSubstr("/bin/sh")));
  EXPECT_THAT(plan->commands.front(), HasSubstr("PYTHONUNBUFFERED=1 "));
  EXPECT_THAT(plan->notes, ::testing::ElementsAre(HasSubstr("OMP_NUM_THREADS is not set")));
  EXPECT_LT(plan->start_timeout, absl::InfiniteDuration());
  facts.environment.push_back("BASH_FUNC_module%%=() { :; }");
  plan = MakeJobPlan(MpirunOptions({}), facts);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_THAT(plan->commands, ::testing::Each(Not(HasSubstr("/bin/sh"))));
  EXPECT_EQ(plan->start_timeout, absl::InfiniteDuration());
  EXPECT_THAT(plan->notes, ::testing::Contains(HasSubstr("ranks get RANK, WORLD_SIZE and their companions when they")));
}

TEST(JobPlannerTest, AnExportedPlaceIsRefused) {
  LaunchOptions options = Options(2);
  options.settings["LOCAL_RANK"] = "0";
  EXPECT_THAT(std::string(MakeJobPlan(options, Facts()).status().message()),
              HasSubstr("-x LOCAL_RANK=0: rondarun itself tells each rank its place"));
}

TEST(JobPlannerTest, AgentsNeedNoInterfaceOfThisHost) {
  LaunchOptions options = MpirunOptions({"ib0"});
  options.launcher = LaunchOptions::Launcher::kSsh;
  EXPECT_EQ(Planned(options).parts.size(), 2u);
}

TEST(JobPlannerTest, WithoutMpirunRanksOfOtherHostsAreStartedOverSsh) {
  const std::string path = std::getenv("PATH");
  ASSERT_EQ(setenv("PATH", "/nonexistent", 1), 0);
  LaunchOptions options = MpirunOptions({});
  options.launcher = LaunchOptions::Launcher::kAutomatic;
  const JobPlan over_ssh = Planned(options);
  options.launcher = LaunchOptions::Launcher::kMpirun;
  const absl::Status wanted = MakeJobPlan(options, Facts()).status();
  options.launcher = LaunchOptions::Launcher::kAutomatic;
  options.remote.mpi_arguments = {"--mca", "btl", "tcp"};
  const absl::Status needed = MakeJobPlan(options, Facts()).status();
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  EXPECT_EQ(over_ssh.parts.size(), 2u);
  EXPECT_THAT(over_ssh.notes, ::testing::Contains(HasSubstr("there is no mpirun in PATH")));
  for (const absl::Status& status : {wanted, needed}) EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

// Puts a shell script named mpirun first in PATH while the object exists.
class FakeMpirun {
 public:
  explicit FakeMpirun(const std::string& script) : path_(std::getenv("PATH")) {
    std::ofstream(file()) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(file(), std::filesystem::perms::owner_all);
    EXPECT_EQ(setenv("PATH", (::testing::TempDir() + ":" + path_).c_str(), 1), 0);
  }
  ~FakeMpirun() {
    EXPECT_EQ(setenv("PATH", path_.c_str(), 1), 0);
    std::filesystem::remove(file());
  }

  static std::string file() { return ::testing::TempDir() + "/mpirun"; }

 private:
  const std::string path_;
};

TEST(JobPlannerTest, WithoutThePluginForMpiRanksOfOtherHostsAreStartedOverSsh) {
  const FakeMpirun mpirun("echo 'mpirun (Open MPI) 4.1.4'");
  LaunchFacts facts = Facts();
  std::vector<std::string> asked;
  facts.find_mpi_plugin = [&](Mpirun kind, const std::string& path) {
    asked.push_back(path);
    return kind == Mpirun::kOpenMpi ? absl::NotFoundError("no plugin") : absl::OkStatus();
  };
  LaunchOptions options = MpirunOptions({});
  options.settings["RONDA_MPI_PLUGIN"] = "/opt/libronda_mpi.so";
  options.settings["OMP_NUM_THREADS"] = "1";
  auto plan = MakeJobPlan(options, facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(asked, ::testing::IsEmpty()) << "the user asks for mpirun";
  options.launcher = LaunchOptions::Launcher::kAutomatic;
  plan = MakeJobPlan(options, facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->parts.size(), 2U);
  EXPECT_THAT(
      plan->notes,
      ::testing::ElementsAre("there is no plugin of Ronda's for Open MPI 4.1.4 (rondarun --check-build says why): the "
                             "ranks are started over ssh, and exchange data over TCP"));
  EXPECT_THAT(asked, ::testing::ElementsAre("/opt/libronda_mpi.so"));
  facts.find_mpi_plugin = [](Mpirun, const std::string&) { return absl::OkStatus(); };
  plan = MakeJobPlan(options, facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->commands, ::testing::ElementsAre(HasSubstr("mpirun ")));
  EXPECT_THAT(plan->notes, ::testing::IsEmpty());
}

// The script fails like an mpirun with a missing library.
TEST(JobPlannerTest, MpirunThatDoesNotWorkIsNotPassedOver) {
  const FakeMpirun mpirun("echo libopen-rte.so.40 is missing >&2; exit 127");
  LaunchOptions options = MpirunOptions({});
  options.launcher = LaunchOptions::Launcher::kAutomatic;
  const absl::Status status = MakeJobPlan(options, Facts()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), AllOf(StartsWith(FakeMpirun::file()), HasSubstr("exited with code 127"),
                                                   HasSubstr("libopen-rte.so.40 is missing")));
}

TEST(JobPlannerTest, TooFewSlotsAreAnErrorForEveryLauncher) {
  for (const LaunchOptions::Launcher launcher :
       {LaunchOptions::Launcher::kAutomatic, LaunchOptions::Launcher::kMpirun, LaunchOptions::Launcher::kSsh}) {
    LaunchOptions options = Options(3);
    options.hosts = {{"alpha", 1}, {"beta", 1}};
    options.launcher = launcher;
    const auto plan = MakeJobPlan(options, Facts());
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("-np 3 needs 3 slots, and -H offers 2"));
  }
}

}  // namespace
}  // namespace ronda
