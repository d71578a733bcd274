// SPDX-License-Identifier: Apache-2.0

// Tests nodes that join and leave a job. Each host is a node, and runs rondarun --nnodes MIN:MAX, without ssh.
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ElasticNodesTest : public testing::LauncherHostsTest {
 protected:
  std::string Address() const {
    return absl::StrCat(hosts_files_.empty() ? hosts_->AddressOf(0) : "trainer", ":29400");
  }

  // Runs the job's command, which is the same for all hosts, on one host. The members run the program of
  // elastic_hosts_test.cc.
  std::unique_ptr<LauncherRun> Start(int host, const std::string& nodes, const std::string& secret = "f00d") const {
    const std::vector<std::string> words = {
        hosts_files_.empty() ? "" : "mount --bind " + hosts_files_[host] + " /etc/hosts &&",
        "cd",
        std::filesystem::current_path(),
        "&&",
        "export RONDA_JOB_SECRET=" + secret,
        "TEST_FINISH=" + directory_ + "/finish",
        "RONDA_HEARTBEAT=200ms RONDA_HEARTBEAT_TIMEOUT=2s",
        "RONDA_HOSTS_PLUGIN=" + HostsPlugin(),
        "&&",
        "exec programs/rondarun/rondarun --nproc-per-node 2 --nnodes",
        nodes,
        "--rdzv-endpoint",
        Address(),
        std::filesystem::read_symlink("/proc/self/exe"),
        "--rank_program=count_steps"};
    const std::string command = absl::StrJoin(words, " ");
    const std::string agent = hosts_->agent();
    const std::string name = hosts_->NameOf(host);
    // Signals reach rondarun, because the agent and the shell exec the next program, and finally rondarun.
    const auto become_agent = [agent, name, command] {
      execl(agent.c_str(), agent.c_str(), name.c_str(), command.c_str(), nullptr);
    };
    return std::make_unique<LauncherRun>(std::vector<std::string>(), LauncherRun::Options{.in_child = become_agent});
  }
  std::unique_ptr<LauncherRun> StartLeader(const std::string& nodes) const {
    auto leader = Start(0, nodes);
    leader->WaitForErr("rondarun: leads the job; nodes join it at " + Address());
    return leader;
  }

  // Waits until all ranks have made a step in each of `time` epochs of `size` ranks.
  static void AwaitSize(LauncherRun* leader, int size, int time = 1) {
    leader->WaitForOut(absl::StrCat("size ", size, " local size "), size * time);
  }

  int Finish(LauncherRun* leader) const {
    std::ofstream(directory_ + "/finish") << "";
    return leader->Finish();
  }

  // The files to mount over /etc/hosts, by host. If there are any, nodes look up the leader as "trainer" in their
  // host's file.
  std::vector<std::string> hosts_files_;
};

TEST_F(ElasticNodesTest, TheJobGrowsByANodeAndGoesOnWithoutIt) {
  const auto leader = StartLeader("1:2");
  AwaitSize(leader.get(), 2);
  auto node = Start(1, "1:2");
  AwaitSize(leader.get(), 4);
  EXPECT_THAT(leader->out(), HasSubstr("[3]<stdout>: size 4 local size 2 rank 3 local rank 1"));
  node->Signal(SIGKILL);
  EXPECT_EQ(node->Finish(), -SIGKILL);
  AwaitSize(leader.get(), 2, 2);
  WaitUntil([&] { return ProcessesOn(1).empty(); }, "the end of all that ran on the node");
  EXPECT_THAT(leader->err(),
              HasSubstr(absl::StrCat("rondarun: host ", hosts_->NameOf(1), " is lost with members 2, 3: ")));
  node = Start(1, "1:2");
  AwaitSize(leader.get(), 4, 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->out() << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
  EXPECT_EQ(node->LastLine(), "rondarun: the job has ended well");
}

TEST_F(ElasticNodesTest, ANodeMayComeBeforeTheLeader) {
  const auto node = Start(1, "2:3");
  node->WaitForErr(
      absl::StrCat("rondarun: the job at ", Address(), " cannot be joined yet (Connection refused); trying again"));
  const auto leader = StartLeader("2:3");
  AwaitSize(leader.get(), 4);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->out() << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
}

TEST_F(ElasticNodesTest, ANodeWithAnotherSecretIsRefused) {
  const auto leader = StartLeader("1:2");
  const auto node = Start(1, "1:2", "cafe");
  EXPECT_EQ(node->Finish(), 1);
  EXPECT_THAT(node->LastLine(), AllOf(StartsWith("rondarun: cannot join the job at " + Address()),
                                      HasSubstr("another RONDA_JOB_SECRET: set it to the same value on every node")));
  leader->WaitForErr(absl::StrCat("rondarun: a node at ", hosts_->AddressOf(1), " was refused: "));
  EXPECT_EQ(Finish(leader.get()), 0) << leader->out() << leader->err();
}

TEST_F(ElasticNodesTest, ProcessesOfAllNodesEndWhenTheLeaderIsKilled) {
  const auto leader = StartLeader("2:3");
  const auto node = Start(1, "2:3");
  AwaitSize(leader.get(), 4);
  leader->Signal(SIGKILL);
  EXPECT_EQ(node->Finish(), 1);
  EXPECT_THAT(node->LastLine(), StartsWith(absl::StrCat("rondarun: the leader of the job at ", Address(), " is gone")));
  leader->Finish();
  for (const int host : {0, 1}) {
    WaitUntil([&] { return ProcessesOn(host).empty(); }, "the end of all that ran on a host");
  }
}

TEST_F(ElasticNodesTest, ANodeThatIsCutOffIsGoneOnWithout) {
  const auto leader = StartLeader("1:2");
  const auto node = Start(1, "1:2");
  AwaitSize(leader.get(), 4);
  ASSERT_EQ(hosts_->CutOff(1), absl::OkStatus());
  leader->WaitForErr("its agent has given no sign of life for 2s");
  leader->WaitForErr("begins with members 0, 1\n");
  ASSERT_EQ(hosts_->Reconnect(1), absl::OkStatus());
  EXPECT_EQ(node->Finish(), 1);
  EXPECT_THAT(node->LastLine(), HasSubstr("or has given this node up"));
  EXPECT_EQ(Finish(leader.get()), 0) << leader->out() << leader->err();
}

// On the leader's host, the leader's name resolves to loopback. On the other host, it has two addresses.
TEST_F(ElasticNodesTest, NodesJoinALeaderWhoseNameHostsResolveDifferently) {
  const std::string first = hosts_->AddressOf(0);
  const std::string second = first.substr(0, first.rfind('.')) + ".77";
  ASSERT_EQ(hosts_->RunOn(0, absl::StrCat("ip addr add ", second, "/24 dev eth0")), absl::OkStatus());
  hosts_files_ = {WriteHostsFile(hosts_->NameOf(0), {"127.0.1.1"}), WriteHostsFile(hosts_->NameOf(1), {second, first})};
  const auto leader = StartLeader("1:2");
  AwaitSize(leader.get(), 2);
  const auto node = Start(1, "1:2");
  AwaitSize(leader.get(), 4);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->out() << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
}

}  // namespace
}  // namespace ronda
