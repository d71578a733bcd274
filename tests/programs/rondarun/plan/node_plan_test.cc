// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/node_plan.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

LaunchOptions Options() {
  LaunchOptions options;
  options.rank_count = 2;
  options.command = {"./train"};
  options.elastic =
      ElasticOptions{.min_ranks = 4,
                     .max_ranks = 8,
                     .nodes = NodeRange{.min_nodes = 2, .max_nodes = 4, .address = "10.0.0.1", .port = 29400}};
  return options;
}

LaunchFacts Facts() {
  return {.hostname = "alpha",
          .own_addresses = {"alpha", "10.0.0.1"},
          .program = "/bin/rondarun",
          .environment = {"PATH=/bin", "RONDA_JOB_SECRET=shared"},
          .job_id = "cafe",
          .job_secret = "f00d"};
}

TEST(NodePlanTest, TheLeaderBeginsWithItsOwnHostAndWaitsForTheSmallestJob) {
  const auto plan = MakeJobPlan(Options(), Facts());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->parts.empty());
  EXPECT_EQ(plan->job_id, "cafe");
  EXPECT_EQ(plan->rank_count, 4) << "files and marks of others are made when they come";
  ASSERT_TRUE(plan->elastic.has_value());
  const JobMembership::Options& membership = plan->elastic->membership;
  EXPECT_EQ(membership.min_members, 4);
  EXPECT_EQ(membership.initial_members, 8);
  EXPECT_EQ(membership.max_members, 8);
  ASSERT_EQ(membership.hosts.size(), 1);
  EXPECT_EQ(membership.hosts[0].name, "alpha");
  EXPECT_EQ(membership.hosts[0].slots, 2);
  EXPECT_THAT(plan->commands, ElementsAre("/bin/rondarun --agent"));
  EXPECT_THAT(plan->elastic->describe_host("alpha").variables, Contains("RONDA_JOB_SECRET=shared"));
}

// Nodes do not send variables to each other, because the connection is not encrypted. Each node uses its own.
TEST(NodePlanTest, OtherNodesReceiveNoVariables) {
  LaunchOptions options = Options();
  options.settings["TOKEN"] = "hush";
  EXPECT_THAT(PlanNodesJob(options, Facts()).elastic->describe_host("beta").variables, IsEmpty());
}

TEST(NodePlanTest, ANodeHasItsOwnVariables) {
  LaunchOptions options = Options();
  options.settings["RONDA_CYCLE_TIME"] = "2ms";
  const std::vector<std::string> environment = {"PATH=/bin", "RONDA_JOB_SECRET=shared", "RONDA_JOB_ID=another"};
  EXPECT_THAT(VariablesOfNode(options, environment, "cafe"),
              ElementsAre("RONDA_CYCLE_TIME=2ms", "RONDA_START_TIMEOUT=10s", "PYTHONUNBUFFERED=1", "OMP_NUM_THREADS=1",
                          "RONDA_JOB_SECRET=shared", "RONDA_JOB_ID=cafe"));
  options.rank_count = 1;
  EXPECT_THAT(VariablesOfNode(options, {"RONDA_START_TIMEOUT=5s"}, "cafe"),
              ElementsAre("RONDA_CYCLE_TIME=2ms", "PYTHONUNBUFFERED=1", "RONDA_JOB_ID=cafe"));
}

TEST(NodePlanTest, TheSecretOfAnOptionComesFirst) {
  LaunchOptions options = Options();
  EXPECT_EQ(SecretOfNodes(options, {"RONDA_JOB_SECRET=inherited"}), "inherited");
  EXPECT_EQ(SecretOfNodes(options, {"PATH=/bin"}), "");
  options.settings["RONDA_JOB_SECRET"] = "given";
  EXPECT_EQ(SecretOfNodes(options, {"RONDA_JOB_SECRET=inherited"}), "given");
}

}  // namespace
}  // namespace ronda
