// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/plan/launch_plan.h"

#include <sched.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/local_host.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;
using Binding = LaunchOptions::Binding;

PlanRequest Request(int rank_count) {
  return {.rank_count = rank_count,
          .hosts = {{"localhost", rank_count}},
          .job_id = "cafe",
          .job_secret = "f00d",
          .environment = {"PATH=/bin", "HOME=/root"}};
}

LaunchPlan Planned(const PlanRequest& request) {
  const auto plan = MakeLaunchPlan(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(LaunchPlan{});
}

TEST(LaunchPlanTest, EveryRankLearnsItsPlaceAndTheJob) {
  const LaunchPlan plan = Planned(Request(2));
  ASSERT_EQ(plan.ranks.size(), 2u);
  EXPECT_THAT(plan.ranks[1].environment,
              IsSupersetOf({"PATH=/bin", "HOME=/root", "RONDA_RANK=1", "RONDA_SIZE=2", "RONDA_LOCAL_RANK=1",
                            "RONDA_LOCAL_SIZE=2", "RONDA_CROSS_RANK=0", "RONDA_CROSS_SIZE=1", "RONDA_JOB_ID=cafe",
                            "RONDA_JOB_SECRET=f00d"}));
  EXPECT_THAT(plan.ranks[0].environment, Contains("RONDA_RANK=0"));
}

TEST(LaunchPlanTest, RanksHaveTheVariablesOfTorchrunAndHorovodrun) {
  PlanRequest request = Request(3);
  request.hosts = {{"a", 2}, {"b", 1}};
  EXPECT_THAT(Planned(request).ranks[2].environment,
              IsSupersetOf({"RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1",
                            "HOROVOD_RANK=2", "HOROVOD_SIZE=3", "HOROVOD_LOCAL_RANK=0", "HOROVOD_LOCAL_SIZE=1",
                            "HOROVOD_CROSS_RANK=1", "HOROVOD_CROSS_SIZE=2"}));
}

TEST(LaunchPlanTest, MembersOfAnElasticJobKnowTheirSlotsAlone) {
  PlanRequest request = Request(2);
  request.places = PlanRequest::Places::kSlots;
  request.environment = {"RANK=7", "WORLD_SIZE=8"};  // another job's
  const std::vector<std::string> environment = Planned(request).ranks[1].environment;
  EXPECT_THAT(environment, IsSupersetOf({"RONDA_LOCAL_RANK=1", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"}));
  for (const char* unknown : {"RANK=", "WORLD_SIZE=", "GROUP_RANK=", "HOROVOD_RANK=", "HOROVOD_SIZE="}) {
    EXPECT_THAT(environment, Each(Not(StartsWith(unknown))));
  }
}

TEST(LaunchPlanTest, InheritedPlaceOfAnotherJobIsReplaced) {
  PlanRequest request = Request(1);
  request.environment = {"RONDA_RANK=7",
                         "RONDA_SIZE=8",
                         "RONDA_JOB_ID=old",
                         "RONDA_JOB_SECRET=s",
                         "RONDA_LOG_LEVEL=debug",
                         "RONDA_OUTPUT_IS_TERMINAL=1",
                         "RANK=7",
                         "HOROVOD_SIZE=8"};
  const std::vector<std::string> environment = Planned(request).ranks[0].environment;
  EXPECT_THAT(environment,
              IsSupersetOf({"RONDA_RANK=0", "RONDA_SIZE=1", "RONDA_JOB_ID=cafe", "RONDA_JOB_SECRET=f00d"}));
  for (const char* old :
       {"RONDA_RANK=7", "RONDA_SIZE=8", "RONDA_JOB_ID=old", "RONDA_JOB_SECRET=s", "RANK=7", "HOROVOD_SIZE=8"}) {
    EXPECT_THAT(environment, Not(Contains(old)));
  }
  EXPECT_THAT(environment, Each(Not(StartsWith("RONDA_OUTPUT_IS_TERMINAL"))));
  EXPECT_THAT(environment, Contains("RONDA_LOG_LEVEL=debug"));
}

TEST(LaunchPlanTest, RanksOfAHostGetAFreePortWhereTheyMayMeet) {
  PlanRequest request = Request(2);
  request.free_port = 4711;
  request.environment = {"RONDA_MASTER_ADDR=elsewhere", "RONDA_MASTER_PORT=1"};  // another job's
  const std::vector<std::string> environment = Planned(request).ranks[1].environment;
  EXPECT_THAT(environment, IsSupersetOf({"RONDA_MASTER_ADDR=127.0.0.1", "RONDA_MASTER_PORT=4711"}));
  EXPECT_THAT(environment, Not(Contains("RONDA_MASTER_ADDR=elsewhere")));
  EXPECT_THAT(environment, Not(Contains("RONDA_MASTER_PORT=1")));
  request.settings["RONDA_MASTER_PORT"] = "4712";
  EXPECT_THAT(Planned(request).ranks[1].environment,
              AllOf(Contains("RONDA_MASTER_ADDR=127.0.0.1"), Contains("RONDA_MASTER_PORT=4712"),
                    Not(Contains("RONDA_MASTER_PORT=4711"))));
}

TEST(LaunchPlanTest, ARankAloneMeetsNobody) {
  EXPECT_THAT(Planned(Request(1)).ranks[0].environment, Each(Not(StartsWith("RONDA_MASTER_"))));
}

TEST(LaunchPlanTest, OtherLibrariesGetAnAddressForTheirStore) {
  PlanRequest request = Request(2);
  request.free_port = 4711;
  request.store_port = 4712;
  request.environment = {"MASTER_ADDR=elsewhere", "MASTER_PORT=1"};  // another job's
  EXPECT_THAT(Planned(request).ranks[1].environment,
              AllOf(IsSupersetOf({"MASTER_ADDR=127.0.0.1", "MASTER_PORT=4712"}), Not(Contains("MASTER_PORT=1"))));
  request.settings = {{"MASTER_PORT", "4713"}};  // the user's
  EXPECT_THAT(Planned(request).ranks[1].environment,
              AllOf(Contains("MASTER_PORT=4713"), Each(Not(StartsWith("MASTER_ADDR")))));

  PlanRequest node = Request(2);
  node.nodes = NodeGroup{.nodes = 2, .node_rank = 1, .master_address = "10.0.0.1", .master_port = 29500};
  EXPECT_THAT(Planned(node).ranks[0].environment,
              IsSupersetOf({"RONDA_MASTER_PORT=29500", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29501"}));
}

TEST(LaunchPlanTest, TerminalIsAnnounced) {
  PlanRequest request = Request(1);
  request.output_is_terminal = true;
  EXPECT_THAT(Planned(request).ranks[0].environment, Contains("RONDA_OUTPUT_IS_TERMINAL=1"));
}

TEST(LaunchPlanTest, SettingsReplaceTheInheritedOnes) {
  PlanRequest request = Request(1);
  request.environment = {"RONDA_START_TIMEOUT=9s", "RONDA_AUTOTUNE=1"};
  EXPECT_THAT(Planned(request).ranks[0].environment, Contains("RONDA_START_TIMEOUT=9s"));
  request.settings = {{"RONDA_START_TIMEOUT", "90.5s"}, {"RONDA_AUTOTUNE_LOG", "a=b"}};
  const std::vector<std::string> environment = Planned(request).ranks[0].environment;
  EXPECT_THAT(environment, Contains("RONDA_START_TIMEOUT=90.5s"));
  EXPECT_THAT(environment, Not(Contains("RONDA_START_TIMEOUT=9s")));
  EXPECT_THAT(environment, Contains("RONDA_AUTOTUNE=1"));
  EXPECT_THAT(environment, Contains("RONDA_AUTOTUNE_LOG=a=b"));
}

TEST(LaunchPlanTest, RanksThatShareAHostGetOneThreadUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(Planned(Request(2)).notes, ElementsAre(HasSubstr("OMP_NUM_THREADS is not set: each rank gets")));
  EXPECT_THAT(Planned(Request(2)).ranks[1].environment, Contains("OMP_NUM_THREADS=1"));
  EXPECT_THAT(Planned(Request(1)).notes, IsEmpty());
  EXPECT_THAT(Planned(Request(1)).ranks[0].environment, Each(Not(StartsWith("OMP_NUM_THREADS"))));

  PlanRequest set = Request(2);
  set.environment = {"OMP_NUM_THREADS=6"};
  EXPECT_THAT(Planned(set).notes, IsEmpty());
  EXPECT_THAT(Planned(set).ranks[1].environment, Contains("OMP_NUM_THREADS=6"));
  EXPECT_THAT(Planned(set).ranks[1].environment, Not(Contains("OMP_NUM_THREADS=1")));
}

TEST(LaunchPlanTest, PythonDoesNotBufferWhatRanksPrintUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(Planned(Request(1)).ranks[0].environment, Contains("PYTHONUNBUFFERED=1"));
  PlanRequest set = Request(1);
  set.environment = {"PYTHONUNBUFFERED="};  // as Python has it, empty means no
  EXPECT_THAT(Planned(set).ranks[0].environment, Contains("PYTHONUNBUFFERED="));
  EXPECT_THAT(Planned(set).ranks[0].environment, Not(Contains("PYTHONUNBUFFERED=1")));
}

TEST(LaunchPlanTest, RanksFillHostsInOrder) {
  PlanRequest request = Request(6);
  request.hosts = {{"a", 3}, {"b", 1}, {"c", 4}};
  const LaunchPlan plan = Planned(request);
  struct Place {
    std::string host;
    int local_rank, local_size, cross_rank, cross_size;
  };
  const std::vector<Place> expected = {{"a", 0, 3, 0, 3}, {"a", 1, 3, 0, 2}, {"a", 2, 3, 0, 1},
                                       {"b", 0, 1, 1, 3}, {"c", 0, 2, 2, 3}, {"c", 1, 2, 1, 2}};
  ASSERT_EQ(plan.ranks.size(), expected.size());
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    SCOPED_TRACE(rank);
    const Topology& topology = plan.ranks[rank].topology;
    EXPECT_EQ(topology.rank, static_cast<int>(rank));
    EXPECT_EQ(topology.hostname, expected[rank].host);
    EXPECT_EQ(topology.local_rank, expected[rank].local_rank);
    EXPECT_EQ(topology.local_size, expected[rank].local_size);
    EXPECT_EQ(topology.cross_rank, expected[rank].cross_rank);
    EXPECT_EQ(topology.cross_size, expected[rank].cross_size);
  }
}

PlanRequest NodeRequest() {
  PlanRequest request = Request(2);
  request.nodes = NodeGroup{.nodes = 3, .node_rank = 1, .master_address = "node0", .master_port = 4711};
  return request;
}

TEST(LaunchPlanTest, RanksOfANodeComeAfterThoseOfTheNodesBefore) {
  const LaunchPlan plan = Planned(NodeRequest());
  ASSERT_EQ(plan.ranks.size(), 2u);
  EXPECT_THAT(plan.ranks[1].environment,
              IsSupersetOf({"RONDA_RANK=3", "RONDA_SIZE=6", "RONDA_LOCAL_RANK=1", "RONDA_LOCAL_SIZE=2",
                            "RONDA_CROSS_RANK=1", "RONDA_CROSS_SIZE=3", "GROUP_RANK=1", "RONDA_MASTER_ADDR=node0",
                            "RONDA_MASTER_PORT=4711", "RONDA_JOB_SECRET=f00d"}));
  EXPECT_THAT(plan.ranks[1].environment, Each(Not(StartsWith("RONDA_JOB_ID="))));
  EXPECT_EQ(plan.ranks[0].topology.rank, 2);
}

TEST(LaunchPlanTest, NodesNeedASecretUnlessTheyAreOnOneHost) {
  PlanRequest request = NodeRequest();
  request.job_secret = "";
  EXPECT_THAT(std::string(MakeLaunchPlan(request).status().message()), HasSubstr("RONDA_JOB_SECRET is not set"));
  for (const char* address : {"127.0.0.1", "localhost", "::1"}) {
    request.nodes->master_address = address;
    EXPECT_THAT(Planned(request).ranks[0].environment, Each(Not(StartsWith("RONDA_JOB_SECRET"))));
  }
}

TEST(LaunchPlanTest, TooFewSlotsAreAnError) {
  PlanRequest request = Request(4);
  request.hosts = {{"localhost", 2}};
  const auto plan = MakeLaunchPlan(request);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("-np 4 needs 4 slots, and -H offers 2"));
}

TEST(LaunchEnvironmentTest, NamesEndAtTheFirstEqualsSign) {
  EXPECT_EQ(NameOf("A=b=c"), "A");
  EXPECT_EQ(NameOf("A"), "A");
  EXPECT_TRUE(ContainsName({"X=1", "AB=2"}, "AB"));
  EXPECT_FALSE(ContainsName({"X=1", "AB=2"}, "A"));
}

TEST(LaunchEnvironmentTest, PlaceInAnotherJobIsNotInherited) {
  EXPECT_THAT(
      InheritedVariables(
          {"RONDA_RANK=3", "HOME=/root", "RONDA_JOB_SECRET=x", "RONDA_MASTER_ADDR=a", "RONDA_LOG_LEVEL=debug"}, {}),
      ElementsAre("HOME=/root", "RONDA_LOG_LEVEL=debug"));
}

TEST(LaunchEnvironmentTest, SettingsReplaceWhatIsInherited) {
  EXPECT_THAT(InheritedVariables({"A=1", "B=2"}, {{"A", "3"}, {"C", "4"}}), ElementsAre("B=2", "A=3", "C=4"));
}

TEST(LaunchEnvironmentTest, OtherHostsGetWhatTheyNeed) {
  EXPECT_THAT(VariablesForOtherHosts(
                  {"HOME=/root", "PATH=/bin", "LD_LIBRARY_PATH=/lib", "RONDA_LOG_LEVEL=info", "NCCL_DEBUG=WARN",
                   "OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=", "CUDA_VISIBLE_DEVICES=0", "MY=1", "FOO=2", "PATHS=3"},
                  {{"MY", "1"}}, {"FOO", "UNSET"}),
              ElementsAre("PATH=/bin", "LD_LIBRARY_PATH=/lib", "RONDA_LOG_LEVEL=info", "NCCL_DEBUG=WARN",
                          "OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=", "CUDA_VISIBLE_DEVICES=0", "MY=1", "FOO=2"));
  EXPECT_THAT(VariablesForOtherHosts({"HOME=/root"}, {}, {}), IsEmpty());
}

TEST(LaunchEnvironmentTest, StartTimeoutIsTheRanksOwn) {
  EXPECT_EQ(StartTimeoutOf({"A=1", "RONDA_START_TIMEOUT=1m30s"}), absl::Seconds(90));
  EXPECT_EQ(StartTimeoutOf({"RONDA_START_TIMEOUT=8"}), absl::Seconds(8));
  for (const char* other : {"A=1", "RONDA_START_TIMEOUT=", "RONDA_START_TIMEOUT=-1s", "RONDA_START_TIMEOUT=soon"}) {
    EXPECT_EQ(StartTimeoutOf({other}), absl::Seconds(30)) << other;
  }
}

// Returns a host with two NUMA nodes, which have two cores each. Each core has two threads, numbered as in Linux.
HostCores Cores() { return {.nodes = {{{0, 4}, {1, 5}}, {{2, 6}, {3, 7}}}}; }

TEST(BindingTest, RanksRunAnywhereUnlessTheUserSaysOtherwise) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNone, 0, 2), IsEmpty());
}

TEST(BindingTest, EveryRankHasACoreOfItsOwn) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kCore, 0, 4), ElementsAre(0, 4));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kCore, 3, 4), ElementsAre(3, 7));
}

TEST(BindingTest, RanksThatOutnumberCoresHaveNoneOfTheirOwn) {
  EXPECT_EQ(std::string(CheckBinding(Cores(), Binding::kCore, 5).message()),
            "--binding core: 5 ranks on this host, and it has 4 cores for them; start no more ranks than that, or give "
            "--binding none");
  EXPECT_TRUE(CheckBinding(Cores(), Binding::kCore, 4).ok());
  EXPECT_TRUE(CheckBinding(Cores(), Binding::kNuma, 5).ok());
  EXPECT_TRUE(CheckBinding(Cores(), Binding::kNone, 5).ok());
}

TEST(BindingTest, MembersThatOutnumberCoresShareThem) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kCore, 5, 6), ElementsAre(1, 5));
}

TEST(BindingTest, RanksAreSpreadOverMemoryNodes) {
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 0, 3), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 1, 3), ElementsAre(0, 4, 1, 5));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 2, 3), ElementsAre(2, 6, 3, 7));
  EXPECT_THAT(CpusOfRank(Cores(), Binding::kNuma, 0, 1), ElementsAre(0, 4, 1, 5));
}

TEST(BindingTest, HostWithoutKnownCoresBindsNothing) { EXPECT_THAT(CpusOfRank({}, Binding::kCore, 0, 1), IsEmpty()); }

}  // namespace
}  // namespace ronda
