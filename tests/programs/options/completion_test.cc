// SPDX-License-Identifier: Apache-2.0

// Tests the options and variables with which users of torchrun and Paddle start jobs.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/arguments.h"
#include "tests/programs/options/fake_sources.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Words = std::vector<std::string>;

LaunchOptions Parsed(const Words& words, const FakeMachine& machine = {}) {
  const auto options = ParseArguments(words, Sources(machine));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

TEST(NodeArgumentsTest, ANodeAloneIsAJobOfThisHost) {
  const std::vector<Words> all = {{"--nproc-per-node", "2", "x"},
                                  {"--nproc_per_node=2", "x"},
                                  {"--standalone", "--nproc-per-node", "2", "x"},
                                  {"--nnodes", "1", "--nproc-per-node", "2", "x"},
                                  {"--nnodes=1:1", "--node-rank=0", "--nproc-per-node", "2", "x"},
                                  {"--master-port", "1234", "--nproc-per-node", "2", "x"},
                                  {"--ips", "10.9.9.9", "--nproc-per-node", "2", "x"},
                                  {"--gpus", "4,6", "x"}};
  for (const Words& words : all) {
    const LaunchOptions options = Parsed(words);
    EXPECT_EQ(options.rank_count, 2) << words.front();
    EXPECT_FALSE(options.nodes.has_value()) << words.front();
    EXPECT_THAT(options.hosts, IsEmpty());
    EXPECT_THAT(options.command, ElementsAre("x"));
  }
}

TEST(NodeArgumentsTest, WithoutANumberANodeHasOneRank) {
  EXPECT_EQ(Parsed({"--standalone", "x"}).rank_count, 1);
  EXPECT_EQ(Parsed({"--nnodes", "2", "--node-rank", "1", "x"}).rank_count, 1);
}

TEST(NodeArgumentsTest, RanksCanFollowCoresAndGpus) {
  const FakeMachine machine{.cores = 6, .gpus = 4};
  EXPECT_EQ(Parsed({"--nproc-per-node", "cpu", "x"}, machine).rank_count, 6);
  EXPECT_EQ(Parsed({"--nproc-per-node", "gpu", "x"}, machine).rank_count, 4);
  EXPECT_EQ(Parsed({"--nproc-per-node", "auto", "x"}, machine).rank_count, 4);
  EXPECT_EQ(Parsed({"--nproc-per-node", "auto", "x"}, {.cores = 6}).rank_count, 6);
}

struct Group {
  Words words;
  int node_rank;
  std::string address;
  int port;
};

class NodeGroupTest : public ::testing::TestWithParam<Group> {};

TEST_P(NodeGroupTest, OneOfTwoNodesStartsItsOwnRanks) {
  Words words = GetParam().words;
  words.insert(words.end(), {"--nproc-per-node", "3", "./train", "--nnodes"});
  const LaunchOptions options = Parsed(words);
  ASSERT_TRUE(options.nodes.has_value());
  EXPECT_EQ(options.nodes->nodes, 2);
  EXPECT_EQ(options.nodes->node_rank, GetParam().node_rank);
  EXPECT_EQ(options.nodes->master_address, GetParam().address);
  EXPECT_EQ(options.nodes->master_port, GetParam().port);
  EXPECT_EQ(options.rank_count, 3);
  EXPECT_THAT(options.command, ElementsAre("./train", "--nnodes"));
}

INSTANTIATE_TEST_SUITE_P(
    All, NodeGroupTest,
    ::testing::Values(
        Group{{"--nnodes", "2", "--node-rank", "1"}, 1, "127.0.0.1", 29500},
        Group{{"--nnodes=2:2", "--node_rank=0", "--master_addr=alpha", "--master_port=1234"}, 0, "alpha", 1234},
        Group{{"--nnodes", "2", "--node-rank", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", "alpha:1234"},
              1,
              "alpha",
              1234},
        Group{{"--nnodes", "2", "--rank", "1", "--master", "[fd00::7]:1234"}, 1, "fd00::7", 1234},
        Group{{"--ips", "10.0.0.1,10.0.0.2"}, 0, "10.0.0.1", 29500},
        Group{{"--ips", "10.0.0.9,10.0.0.1", "--master-port", "6170"}, 1, "10.0.0.9", 6170},
        Group{{"--ips=fd00::2,fd00::1"}, 1, "fd00::2", 29500}, Group{{"--ips=beta,alpha"}, 1, "beta", 29500}));

TEST(NodeArgumentsTest, PodOfAnIndexedJobIsTheNodeOfItsIndex) {
  const FakeMachine pod = {.environment = {{"JOB_COMPLETION_INDEX", "2"}}};
  const Words words = {"--nnodes", "4", "--master-addr", "train-0.train", "x"};
  const LaunchOptions options = Parsed(words, pod);
  ASSERT_TRUE(options.nodes.has_value());
  EXPECT_EQ(options.nodes->node_rank, 2);
  EXPECT_EQ(options.nodes->master_address, "train-0.train");
  EXPECT_EQ(Parsed({"--nnodes", "4", "--node-rank", "1", "x"}, pod).nodes->node_rank, 1) << "an option comes first";
  EXPECT_FALSE(Parsed({"-np", "2", "x"}, pod).nodes.has_value()) << "a pod alone is no node of several";
  for (const char* index : {"4", "-1", "", "2x"}) {
    const auto wrong = ParseArguments(words, Sources({.environment = {{"JOB_COMPLETION_INDEX", index}}}));
    EXPECT_THAT(std::string(wrong.status().message()), HasSubstr("JOB_COMPLETION_INDEX=\""));
  }
}

TEST(NodeArgumentsTest, NodeWithoutANumberGetsOneAtTheEndpoint) {
  using Numbering = NodeGroup::Numbering;
  for (const char* endpoint : {"--rdzv-endpoint", "--master"}) {
    const LaunchOptions options = Parsed({"--nnodes", "2", "--rdzv-backend", "c10d", endpoint, "alpha:1234", "x"});
    EXPECT_EQ(options.nodes->numbering, Numbering::kByArrival);
    EXPECT_EQ(options.nodes->master_address, "alpha");
    EXPECT_EQ(Parsed({"--nnodes", "2", "--node-rank", "1", endpoint, "a:1", "x"}).nodes->numbering, Numbering::kGiven);
  }
  const FakeMachine pod = {.environment = {{"JOB_COMPLETION_INDEX", "1"}}};
  EXPECT_EQ(Parsed({"--nnodes", "2", "--master", "alpha:1", "x"}, pod).nodes->numbering, Numbering::kGiven);
  const auto alone = ParseArguments({"--nnodes", "2", "--master-addr", "alpha", "x"}, Sources({}));
  EXPECT_THAT(std::string(alone.status().message()), HasSubstr("--node-rank is missing"));
}

// The environment variables that srun sets for the second of two tasks.
const std::map<std::string, std::string> kSecondTask = {
    {"SLURM_STEP_ID", "0"}, {"SLURM_NODEID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "n[07-08]"}};

TEST(NodeArgumentsTest, TaskOfSrunIsTheNodeOfItsNumber) {
  const LaunchOptions options = Parsed({"--nnodes", "2", "x"}, {.environment = kSecondTask});
  EXPECT_EQ(options.nodes->node_rank, 1);
  EXPECT_EQ(options.nodes->master_address, "n07");
  EXPECT_THAT(options.settings, IsEmpty());
  const Words with_options = {"--nnodes", "2", "--node-rank", "0", "--master-addr", "other", "x"};
  const LaunchOptions said = Parsed(with_options, {.environment = kSecondTask});
  EXPECT_EQ(said.nodes->node_rank, 0);
  EXPECT_EQ(said.nodes->master_address, "other");
  EXPECT_EQ(
      Parsed({"--nnodes", "2", "--master-addr", "other", "x"}, {.environment = kSecondTask}).nodes->master_address,
      "other");
  // An srun task counts as a node only if srun has started as many tasks as the job has nodes.
  const auto three = ParseArguments({"--nnodes", "3", "x"}, Sources({.environment = kSecondTask}));
  EXPECT_THAT(std::string(three.status().message()), HasSubstr("--node-rank is missing"));
  auto wrong = kSecondTask;
  wrong["SLURM_STEP_NODELIST"] = "n[08-07]";
  EXPECT_THAT(std::string(ParseArguments({"--nnodes", "2", "x"}, Sources({.environment = wrong})).status().message()),
              HasSubstr("SLURM_STEP_NODELIST=\"n[08-07]\": should be"));
}

TEST(NodeArgumentsTest, ProcessOfMpiIsTheNodeOfItsRankAndItsRanksAreNoProcessesOfMpi) {
  const std::vector<std::pair<std::string, std::string>> all = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                                {"PMI_RANK", "PMI_SIZE"}};
  for (const auto& [rank, size] : all) {
    const FakeMachine machine = {.environment = {{rank, "1"}, {size, "2"}}};
    const LaunchOptions options = Parsed({"--nnodes", "2", "--master-addr", "n07", "x"}, machine);
    EXPECT_EQ(options.nodes->node_rank, 1) << rank;
    EXPECT_THAT(options.settings, ElementsAre(Pair("RONDA_MPI", "0"))) << rank;
  }
  const FakeMachine users_choice = {.environment = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"RONDA_MPI", "1"}}};
  EXPECT_THAT(Parsed({"--nnodes", "2", "x"}, users_choice).settings, IsEmpty());
  EXPECT_THAT(Parsed({"--nnodes", "1:2", "--master", "n07:1", "x"}, {.environment = {{"PMIX_RANK", "1"}}}).settings,
              ElementsAre(Pair("RONDA_MPI", "0")));
}

// -- Nodes that join and leave --

class ComingNodesTest : public ::testing::TestWithParam<Words> {};

TEST_P(ComingNodesTest, AreAnElasticJobHoweverItIsSaid) {
  const LaunchOptions options = Parsed(GetParam());
  EXPECT_FALSE(options.nodes.has_value()) << "they have no numbers";
  EXPECT_EQ(options.rank_count, 2) << "of this node";
  ASSERT_TRUE(options.elastic.has_value());
  EXPECT_EQ(options.elastic->min_ranks, 2);
  EXPECT_EQ(options.elastic->max_ranks, 8);
  ASSERT_TRUE(options.elastic->nodes.has_value());
  EXPECT_EQ(options.elastic->nodes->min_nodes, 1);
  EXPECT_EQ(options.elastic->nodes->max_nodes, 4);
  EXPECT_EQ(options.elastic->nodes->address, "node0");
  EXPECT_EQ(options.elastic->nodes->port, 29400);
}

INSTANTIATE_TEST_SUITE_P(
    All, ComingNodesTest,
    ::testing::Values(
        Words{"--nnodes", "1:4", "--nproc-per-node", "2", "--rdzv-endpoint", "node0:29400", "x"},
        Words{"--nnodes=1:4", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=node0:29400", "x"},
        Words{"--nnodes", "1:4", "--master", "node0:29400", "--devices", "0,1", "x"},
        Words{"--nnodes", "1:4", "--master-addr", "node0", "--master-port", "29400", "--gpus", "0,1", "x"},
        Words{"--nnodes", "3", "--nnodes", "1:4", "--nproc-per-node", "2", "--master", "node0:29400", "x"}));

TEST(ComingNodesTest, HaveTheOptionsOfElasticJobs) {
  const LaunchOptions options =
      Parsed({"--nnodes", "2:3", "--master", "node0:1", "--elastic-timeout", "60", "--reset-limit", "5",
              "--blacklist-cooldown-range", "1", "2", "--hierarchical-allreduce", "x"});
  EXPECT_EQ(options.elastic->timeout, absl::Seconds(60));
  EXPECT_EQ(options.elastic->reset_limit, 5);
  EXPECT_EQ(options.elastic->cooldown, std::make_pair(absl::Seconds(1), absl::Seconds(2)));
  EXPECT_EQ(options.settings.at("RONDA_BACKEND"), "hierarchical");
}

TEST(ComingNodesTest, TheLastRangeCounts) {
  const LaunchOptions options =
      Parsed({"--nnodes", "1:4", "--nnodes", "2", "--node-rank", "1", "--master", "node0:29400", "x"});
  EXPECT_FALSE(options.elastic.has_value());
  EXPECT_EQ(options.nodes->nodes, 2);
}

TEST(ComingNodesTest, ANumberOfANodeIsNoted) {
  EXPECT_THAT(Parsed({"--nnodes", "1:4", "--master", "node0:29400", "--rank", "1", "x"}).notes,
              ElementsAre("--node-rank has no effect: nodes that come and go have no numbers"));
  const FakeMachine pod = {.environment = {{"JOB_COMPLETION_INDEX", "7"}}};
  EXPECT_THAT(Parsed({"--nnodes", "1:4", "--master", "node0:29400", "x"}, pod).notes, IsEmpty());
}

TEST(NodeArgumentsTest, SeveralNodesHaveTheRequestedBackend) {
  EXPECT_EQ(Parsed({"--nnodes", "2", "--node-rank", "0", "--hierarchical-allreduce", "x"}).settings.at("RONDA_BACKEND"),
            "hierarchical");
}

TEST(NodeArgumentsTest, ScriptsNeedTheirInterpreterNamed) {
  const auto options = ParseArguments({"--nproc-per-node", "2", "train.py"}, Sources({}));
  EXPECT_EQ(std::string(options.status().message()),
            "\"train.py\" is a script, and rondarun starts programs: name its interpreter, for example python3 "
            "train.py");
  EXPECT_THAT(Parsed({"--nproc-per-node", "2", "python3", "train.py"}).command, ElementsAre("python3", "train.py"));
  EXPECT_THAT(Parsed({"--nproc-per-node", "2", "./train.py"}).command, ElementsAre("./train.py"));
}

TEST(MasterTest, EndpointsOfEveryKindAreRead) {
  const auto master = [](const std::string& text) {
    const LaunchOptions options = Parsed({"--nnodes", "2", "--node-rank", "1", "--master", text, "x"});
    return std::make_pair(options.nodes->master_address, options.nodes->master_port);
  };
  EXPECT_EQ(master("node0:1"), std::make_pair(std::string("node0"), 1));
  EXPECT_EQ(master("10.0.0.1:65535"), std::make_pair(std::string("10.0.0.1"), 65535));
  EXPECT_EQ(master("[fd00::1]:29500"), std::make_pair(std::string("fd00::1"), 29500));
}

TEST(MasterTest, InvalidEndpointIsQuotedWithBothForms) {
  for (const std::string text : {"", "node0", ":1", "node0:", "node0:0", "node0:65536", "node0:x", "fd00::1",
                                 "fd00::1:1", "[fd00::1]", "[]:1", "[fd00::1:1", "fd00::1]:1", "http://node0:1"}) {
    const auto options = ParseArguments({"--master", text, "x"}, Sources({}));
    EXPECT_EQ(
        std::string(options.status().message()),
        "--master takes HOST:PORT, for example --master node0:29500 or --master [fd00::1]:29500; got \"" + text + "\"");
  }
}

}  // namespace
}  // namespace ronda
