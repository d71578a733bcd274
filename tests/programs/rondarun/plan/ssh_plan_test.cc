// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/ssh_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

TEST(SshPlanTest, SshAsksForNoPassword) {
  EXPECT_THAT(AgentCommand({}, "alpha", "/opt/ronda/bin/rondarun"),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10",
                          "alpha", "exec /opt/ronda/bin/rondarun --agent"));
}

TEST(SshPlanTest, SshOptionsAndInterfacesArePassedOn) {
  EXPECT_THAT(
      AgentCommand({.remote = {.ssh_port = 2222, .ssh_identity_file = "my key", .network_interfaces = {"eth0", "ib0"}}},
                   "fd00::2", "/my programs/rondarun"),
      ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10", "-p",
                  "2222", "-i", "my key", "fd00::2", "exec '/my programs/rondarun' --agent eth0,ib0"));
}

TEST(SshPlanTest, UsersAgentTakesThePlaceOfSsh) {
  EXPECT_THAT(AgentCommand({.remote = {.agent = "/opt/enter"}}, "alpha", "/bin/rondarun"),
              ElementsAre("/opt/enter", "alpha", "exec /bin/rondarun --agent"));
}

TEST(SshPlanTest, AgentsKnowTheNameOfTheJob) {
  EXPECT_THAT(AgentCommand({.remote = {.agent = "/opt/enter", .network_interfaces = {"eth0"}}, .name = "a&b"}, "alpha",
                           "/bin/rondarun"),
              ElementsAre("/opt/enter", "alpha", "exec /bin/rondarun --agent --name 'a&b' eth0"));
}

LaunchFacts Facts() {
  return {.hostname = "head",
          .own_addresses = {"head"},
          .program = "/bin/rondarun",
          .environment = {"PATH=/bin"},
          .job_id = "cafe",
          .job_secret = "f00d"};
}

TEST(SshPlanTest, EveryHostWithRanksHasAnAgent) {
  LaunchOptions options;
  options.rank_count = 3;
  options.hosts = {{"head", 2}, {"beta", 2}, {"gamma", 2}};
  options.command = {"./train"};
  const auto plan = PlanSshJob(options, Facts());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rank_count, 3);
  EXPECT_THAT(plan->ranks, ElementsAre(0, 1, 2));
  EXPECT_THAT(
      plan->commands,
      ElementsAre(
          "/bin/rondarun --agent",
          "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=10 beta 'exec /bin/rondarun --agent'"));
}

TEST(SshPlanTest, AgentsHaveTheRanksStartTimeout) {
  LaunchOptions options;
  options.rank_count = 1;
  options.hosts = {{"beta", 1}};
  options.command = {"./train"};
  LaunchFacts facts = Facts();
  facts.environment.emplace_back("RONDA_START_TIMEOUT=7s");
  EXPECT_EQ(PlanSshJob(options, facts)->start_timeout, absl::Seconds(7));
  options.settings["RONDA_START_TIMEOUT"] = "9s";
  EXPECT_EQ(PlanSshJob(options, facts)->start_timeout, absl::Seconds(9));
}

TEST(SshPlanTest, TooFewSlotsAreAnError) {
  LaunchOptions options;
  options.rank_count = 3;
  options.hosts = {{"alpha", 1}, {"beta", 1}};
  EXPECT_EQ(PlanSshJob(options, Facts()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RemoteCommandTest, SshAsksForNoPassword) {
  EXPECT_THAT(RemoteCommand({}, "h2", {"/opt/my ronda/rondarun", "--probe"}),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10",
                          "h2", "exec '/opt/my ronda/rondarun' --probe"));
}

TEST(RemoteCommandTest, SshGetsItsPortAndKey) {
  RemoteOptions remote;
  remote.ssh_port = 2222;
  remote.ssh_identity_file = "/my key";
  EXPECT_THAT(RemoteCommand(remote, "h2", {"true"}),
              ElementsAre("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "ServerAliveInterval=10",
                          "-p", "2222", "-i", "/my key", "h2", "exec true"));
}

TEST(RemoteCommandTest, AnAgentGetsTheHostAndTheCommandLine) {
  RemoteOptions remote;
  remote.agent = "/bin/agent";
  remote.ssh_port = 2222;
  EXPECT_THAT(RemoteCommand(remote, "h2", {"echo", "it's"}), ElementsAre("/bin/agent", "h2", "exec echo 'it'\\''s'"));
}

LaunchOptions Elastic() {
  LaunchOptions options;
  options.rank_count = 2;
  options.command = {"./train"};
  options.elastic = ElasticOptions{.min_ranks = 1, .max_ranks = 4};
  return options;
}

TEST(ElasticSshPlanTest, HostsHaveAgentsWhenTheyAreNeeded) {
  LaunchOptions options = Elastic();
  options.hosts = {{"head", 2}, {"beta", 2}};
  options.elastic->cooldown = {absl::Seconds(3), absl::Seconds(90)};
  LaunchFacts facts = Facts();
  facts.environment.emplace_back("RONDA_HEARTBEAT_TIMEOUT=3s");
  const auto plan = PlanElasticSshJob(options, facts);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->parts.empty());
  EXPECT_THAT(plan->ranks, ElementsAre(0, 1));
  EXPECT_THAT(
      plan->commands,
      ElementsAre(
          "/bin/rondarun --agent",
          "ssh -T -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=10 beta 'exec /bin/rondarun --agent'"));
  ASSERT_EQ(plan->elastic->membership.hosts.size(), 2);
  EXPECT_EQ(plan->elastic->membership.hosts[1].name, "beta");
  EXPECT_EQ(plan->elastic->membership.max_host_cooldown, absl::Seconds(90));
  // On other hosts the name "head" may mean a different host, so the launcher asks the agent on "head" for its address.
  EXPECT_EQ(plan->elastic->describe_host("head").address, std::nullopt);
  const AgentHost::Options beta = plan->elastic->describe_host("beta");
  EXPECT_EQ(beta.address, "beta");
  EXPECT_EQ(beta.heartbeat_timeout, absl::Seconds(3));
  EXPECT_THAT(beta.variables, IsSupersetOf({"RONDA_JOB_ID=cafe", "RONDA_JOB_SECRET=f00d", "OMP_NUM_THREADS=1",
                                            "PYTHONUNBUFFERED=1", "RONDA_START_TIMEOUT=10s"}));
}

TEST(ElasticSshPlanTest, MembersNeedSlots) {
  LaunchOptions options = Elastic();
  options.hosts = {{"head", 2}, {"beta", 1}};
  EXPECT_EQ(PlanElasticSshJob(options, Facts()).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ElasticSshPlanTest, AProgramMayListTheHosts) {
  LaunchOptions options = Elastic();
  options.elastic->discovery_script = "/bin/sh";
  options.elastic->slots_per_host = 3;
  const auto plan = PlanElasticSshJob(options, Facts());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->elastic->membership.hosts.empty());
  EXPECT_THAT(plan->elastic->discovery->command, ElementsAre("/bin/sh"));
  EXPECT_EQ(plan->elastic->discovery->slots_per_host, 3);
  options.elastic->discovery_script = "/bin/no-such-program";
  EXPECT_THAT(PlanElasticSshJob(options, Facts()).status().message(),
              HasSubstr("--host-discovery-script /bin/no-such-program: there is no /bin/no-such-program"));
}

TEST(ElasticSshPlanTest, AProgramThatListsTheHostsMayHaveArguments) {
  LaunchOptions options = Elastic();
  options.elastic->discovery_script = "/bin/sh -c 'echo alpha:2'";
  const auto plan = PlanElasticSshJob(options, Facts());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->elastic->discovery->command, ElementsAre("/bin/sh", "-c", "echo alpha:2"));
  options.elastic->discovery_script = "/bin/no-such-program 1";
  EXPECT_THAT(PlanElasticSshJob(options, Facts()).status().message(), HasSubstr("there is no /bin/no-such-program"));
  options.elastic->discovery_script = "/bin/sh 'open";
  EXPECT_THAT(PlanElasticSshJob(options, Facts()).status().message(), HasSubstr("--host-discovery-script /bin/sh 'o"));

  const std::string blank = ::testing::TempDir() + "/list hosts";
  ASSERT_EQ(symlink("/bin/sh", blank.c_str()), 0);
  options.elastic->discovery_script = blank;
  const auto of_file = PlanElasticSshJob(options, Facts());
  unlink(blank.c_str());
  ASSERT_TRUE(of_file.ok()) << of_file.status();
  EXPECT_THAT(of_file->elastic->discovery->command, ElementsAre(blank));
}

}  // namespace
}  // namespace ronda
