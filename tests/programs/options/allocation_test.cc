// SPDX-License-Identifier: Apache-2.0

// Tests command lines in a scheduler's allocation.
#include "programs/options/allocation.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/arguments.h"
#include "programs/options/hosts.h"
#include "tests/programs/options/fake_sources.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

LaunchOptions Parsed(const Words& words, const Variables& variables, const Variables& files = {}) {
  const auto options = ParseArguments(words, Sources({.files = files, .environment = variables}));
  EXPECT_TRUE(options.ok()) << options.status();
  return options.value_or(LaunchOptions{});
}

std::string ErrorOf(const Words& words, const Variables& variables, const Variables& files = {}) {
  return std::string(ParseArguments(words, Sources({.files = files, .environment = variables})).status().message());
}

const Variables kSlurm = {{"SLURM_JOB_NODELIST", "gpu[01-02]"}, {"SLURM_TASKS_PER_NODE", "2(x2)"}};

Variables With(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

struct Scheduler {
  Variables variables;
  Variables files;
  std::string note;  // with the hosts
};

TEST(AllocationTest, EachSchedulerSaysHostsAndRanks) {
  const std::vector<Scheduler> schedulers = {
      {kSlurm, {}, "Slurm's allocation (SLURM_JOB_NODELIST): gpu01:2,gpu02:2; -H or --hostfile names others"},
      {{{"SLURM_JOB_NODELIST", "gpu[01-03,7],login"}, {"SLURM_TASKS_PER_NODE", "2(x3),1,0"}},
       {},
       "gpu01:2,gpu02:2,gpu03:2,gpu7:1;"},
      {{{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_NTASKS", "5"}}, {}, "n1:2,n2:2,n3:1;"},
      {{{"SLURM_JOB_NODELIST", "n[1-2]"}}, {}, "n1:1,n2:1;"},
      {{{"SLURM_JOB_NODELIST", "n[1-20]"}}, {}, "n1:1,n2:1,n3:1,n4:1,n5:1,n6:1,n7:1,n8:1 and 12 more;"},
      {{{"PBS_NODEFILE", "/spool/7"}},
       {{"/spool/7", "n1\nn2.site\nn1\n"}},
       "PBS's allocation (PBS_NODEFILE): n1:2,n2.site:1;"},
      {{{"LSB_MCPU_HOSTS", "n1 2  n2 4 "}, {"LSB_HOSTS", "n3"}}, {}, "LSF's allocation (LSB_MCPU_HOSTS): n1:2,n2:4;"},
      {{{"LSB_DJOB_HOSTFILE", "/lsf/7"}},
       {{"/lsf/7", "n1\nn1\nn2"}},
       "LSF's allocation (LSB_DJOB_HOSTFILE): n1:2,n2:1;"},
      {{{"LSB_HOSTS", "n1 n2 n1"}}, {}, "LSF's allocation (LSB_HOSTS): n1:2,n2:1;"},
  };
  for (const Scheduler& scheduler : schedulers) {
    const LaunchOptions options = Parsed({"x"}, scheduler.variables, scheduler.files);
    EXPECT_THAT(options.notes, ElementsAre(HasSubstr(scheduler.note)));
    EXPECT_EQ(options.rank_count, CountSlots(options.hosts));
  }
}

TEST(AllocationTest, FewerRanksFillItsHostsInOrder) {
  const LaunchOptions options = Parsed({"-np", "3", "x"}, kSlurm);
  EXPECT_EQ(options.rank_count, 3);
  EXPECT_THAT(options.hosts, ElementsAre(HostSlots{"gpu01", 2}, HostSlots{"gpu02", 2}));
}

TEST(AllocationTest, MoreRanksThanTasksAreRefusedWithTheHostsToName) {
  EXPECT_EQ(ErrorOf({"-np", "7", "x"}, kSlurm),
            "7 ranks need as many slots, and Slurm's allocation (SLURM_JOB_NODELIST) offers 4: allocate more tasks, or "
            "say how many ranks each host takes: -H gpu01:4,gpu02:4");
  EXPECT_THAT(ErrorOf({"-np", "4", "--max-np", "8", "x"}, kSlurm), HasSubstr("8 ranks need as many slots"));
}

TEST(AllocationTest, UsersHostsWin) {
  const Variables files = {{"hosts", "beta slots=2\n"}};
  for (const Words& words : {Words{"-H", "beta:2"}, Words{"--hostfile", "hosts"}}) {
    Words all = words;
    all.insert(all.end(), {"-np", "2", "x"});
    const LaunchOptions options = Parsed(all, kSlurm, files);
    EXPECT_THAT(options.hosts, ElementsAre(HostSlots{"beta", 2}));
    EXPECT_THAT(options.notes, IsEmpty());
  }
}

TEST(AllocationTest, NodesAndGpusOfThisHostDoNotTakeIt) {
  for (const Words& words : {Words{"--nproc-per-node", "2", "x"}, Words{"--standalone", "x"},
                             Words{"--gpus", "0,1", "x"}, Words{"--nnodes", "2", "--node-rank", "0", "x"},
                             Words{"-np", "2", "--host-discovery-script", "./hosts.sh", "x"}}) {
    EXPECT_THAT(Parsed(words, kSlurm).hosts, IsEmpty()) << words.front();
  }
}

// In this test, the machine is called alpha.
TEST(AllocationTest, OneHostThatIsThisOneLeavesTheNumberOfRanksToTheUser) {
  for (const char* name : {"alpha", "alpha.site"}) {
    const Variables variables = {{"SLURM_JOB_NODELIST", name}, {"SLURM_TASKS_PER_NODE", "1"}};
    const LaunchOptions options = Parsed({"-np", "4", "x"}, variables);
    EXPECT_EQ(options.rank_count, 4);
    EXPECT_THAT(options.hosts, IsEmpty());
    EXPECT_THAT(options.notes, IsEmpty());
    EXPECT_THAT(Parsed({"x"}, variables).hosts, ElementsAre(HostSlots{"alpha", 1}));
  }
  EXPECT_THAT(Parsed({"-np", "1", "x"}, {{"SLURM_JOB_NODELIST", "beta"}}).hosts, ElementsAre(HostSlots{"beta", 1}));
}

TEST(AllocationTest, TasksWithinItStayOnTheirHost) {
  for (const Variables& task :
       {Variables{{"SLURM_STEP_ID", "0"}}, Variables{{"RONDA_RANK", "1"}}, Variables{{"OMPI_COMM_WORLD_RANK", "1"}},
        Variables{{"PMI_RANK", "1"}}, Variables{{"LSF_PM_TASKID", "1"}}}) {
    EXPECT_THAT(Parsed({"-np", "2", "x"}, With(kSlurm, task)).hosts, IsEmpty()) << task.begin()->first;
  }
  // The two large numbers are Slurm's step ids for the shell of salloc and for a batch script.
  for (const char* step : {"4294967290", "4294967291"}) {
    EXPECT_EQ(Parsed({"x"}, With(kSlurm, {{"SLURM_STEP_ID", step}})).rank_count, 4);
  }
}

TEST(AllocationTest, ACheckLooksAtItsHosts) {
  EXPECT_THAT(Parsed({"--check"}, kSlurm).hosts, ElementsAre(HostSlots{"gpu01", 2}, HostSlots{"gpu02", 2}));
}

TEST(AllocationTest, AMalformedListNamesItsVariable) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"SLURM_JOB_NODELIST", "n[3-1]"}},
       "SLURM_JOB_NODELIST=\"n[3-1]\": should be a list of hosts such as gpu[01-03,7],login; -H or --hostfile names "
       "hosts instead"},
      {{{"SLURM_JOB_NODELIST", "-oProxyCommand=x"}},
       "SLURM_JOB_NODELIST=\"-oProxyCommand=x\": should be a list of names"},
      {With(kSlurm, {{"SLURM_TASKS_PER_NODE", "2(x3)"}}),
       "SLURM_TASKS_PER_NODE=\"2(x3)\": should be a list of counts up to 1024 such as 2(x3),1, for 2 hosts"},
      {With(kSlurm, {{"SLURM_TASKS_PER_NODE", "2(x"}}), "SLURM_TASKS_PER_NODE=\"2(x\": should be"},
      {With(kSlurm, {{"SLURM_TASKS_PER_NODE", "1025(x2)"}}), "SLURM_TASKS_PER_NODE=\"1025(x2)\": should be a list of"},
      {With(kSlurm, {{"SLURM_TASKS_PER_NODE", "0(x2)"}}), "SLURM_TASKS_PER_NODE=\"0(x2)\": should be"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_NTASKS", "1025"}},
       "SLURM_JOB_NODELIST=\"n1\": should be a list of names"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_NTASKS", "many"}}, "SLURM_NTASKS=\"many\": should be a number of tasks"},
      {{{"PBS_NODEFILE", "/none"}},
       "PBS_NODEFILE=\"/none\": should be a file with a line for each slot (/none: No such file or directory)"},
      {{{"PBS_NODEFILE", "/empty"}}, "PBS_NODEFILE=\"/empty\": should be a list of hosts, and it has none"},
      {{{"LSB_MCPU_HOSTS", "n1 2 n2"}}, "LSB_MCPU_HOSTS=\"n1 2 n2\": should be a list of hosts, each with a count"},
      {{{"LSB_MCPU_HOSTS", "n1 1025"}}, "LSB_MCPU_HOSTS=\"n1 1025\": should be"},
      {{{"LSB_MCPU_HOSTS", "n1 two"}}, "LSB_MCPU_HOSTS=\"n1 two\": should be"},
      {{{"LSB_MCPU_HOSTS", ""}}, "LSB_MCPU_HOSTS=\"\": should be"},
      {{{"LSB_HOSTS", " "}}, "LSB_HOSTS=\" \": should be"},
  };
  for (const auto& [variables, error] : cases) {
    EXPECT_THAT(ErrorOf({"x"}, variables, {{"/empty", "\n"}}),
                AllOf(HasSubstr(error), HasSubstr("-H or --hostfile names hosts instead")));
  }
}

}  // namespace
}  // namespace ronda
