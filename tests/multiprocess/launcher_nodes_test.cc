// SPDX-License-Identifier: Apache-2.0

// Tests nodes that join and leave. The nodes of a job are several processes of rondarun --nnodes MIN:MAX on this
// machine.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/unique_fd.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

constexpr char kMember[] = "tests/multiprocess/elastic_member";

class LauncherNodesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static int runs = 0;
    folder_ = absl::StrCat(::testing::TempDir(), "/nodes.", getpid(), ".", runs++);
    std::filesystem::create_directories(folder_);
  }

  std::string Address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Starts a node, with one member unless the options say otherwise. The first node leads the job.
  std::unique_ptr<LauncherRun> Start(const std::string& nodes, const Words& options = {},
                                     const Words& environment = {}) const {
    return Run(nodes, options, {kMember, folder_}, environment);
  }
  std::unique_ptr<LauncherRun> Run(const std::string& nodes, const Words& options, const Words& program,
                                   const Words& environment = {}) const {
    Words words = {"--nnodes", nodes, "--rdzv-endpoint", Address()};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), program.begin(), program.end());
    return std::make_unique<LauncherRun>(
        words, LauncherRun::Options{.environment = environment, .unset = {"RONDA_JOB_SECRET"}});
  }
  std::unique_ptr<LauncherRun> StartLeader(const std::string& nodes, const Words& options = {},
                                           const Words& environment = {}) const {
    auto leader = Start(nodes, options, environment);
    leader->WaitForErr(absl::StrCat("rondarun: leads the job; nodes join it at ", Address()));
    return leader;
  }

  // Waits until there have been `time` epochs of `size` members.
  static void AwaitSize(LauncherRun* leader, int size, int time = 1) {
    leader->WaitForOut(absl::StrCat(" of ", size, ", pid "), size * time);
  }

  // Returns the newest epoch of `size` members.
  static int EpochOf(const LauncherRun& leader, int size) {
    const std::string text = absl::StrCat(" is rank 0 of ", size, ", pid ");
    const size_t at = leader.out().rfind(text);
    return at == std::string::npos ? -1 : NumberAfter(leader.out().substr(leader.out().rfind('[', at)), ": epoch ");
  }
  // Waits until `size` members are in the epoch.
  static void AwaitEpoch(LauncherRun* leader, int epoch, int size) {
    leader->WaitForOut(absl::StrCat(": epoch ", epoch, " is rank "), size);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_THAT(leader->out(), HasSubstr(absl::StrCat(": epoch ", epoch, " is rank ", rank, " of ", size, ", pid ")));
    }
  }

  // Returns the pids of all members that have been in an epoch.
  static std::vector<pid_t> Pids(const LauncherRun& leader) {
    std::vector<pid_t> pids;
    for (const std::string& line : Lines(leader.out())) {
      if (absl::StrContains(line, ", pid ")) pids.push_back(NumberAfter(line, ", pid "));
    }
    return pids;
  }
  static void ExpectNoMemberIsLeft(const LauncherRun& leader) {
    for (const pid_t pid : Pids(leader)) WaitUntil([&] { return !IsRunning(pid); }, "the end of a member");
  }

  // Tells all members to finish their program. Returns the leader's exit code.
  int Finish(LauncherRun* leader) const {
    std::ofstream(folder_ + "/finish") << "";
    return leader->Finish();
  }

  std::string folder_;
  const std::string port_ = testing::FreePort();
};

TEST_F(LauncherNodesTest, ANodeJoinsTheRunningJob) {
  const auto leader = StartLeader("1:2");
  AwaitSize(leader.get(), 1);
  const auto node = Start("1:2");
  AwaitSize(leader.get(), 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
  EXPECT_THAT(leader->out(), AllOf(HasSubstr("[0]<stdout>: finished\n"), HasSubstr("[1]<stdout>: finished\n")));
  EXPECT_THAT(node->out(), IsEmpty());
  EXPECT_THAT(node->err(), AllOf(HasSubstr("rondarun: this is node "), HasSubstr(" of the job at " + Address()),
                                 EndsWith("rondarun: the job has ended well\n")));
}

// -- Nodes that are numbered in the order of arrival --

constexpr char kSayPlace[] = "echo $RANK/$WORLD_SIZE node $GROUP_RANK at $RONDA_MASTER_ADDR:$RONDA_MASTER_PORT";

TEST_F(LauncherNodesTest, NodesGetTheirNumbersInTheOrderOfTheirComing) {
  const Words two_ranks = {"--rdzv-backend", "c10d", "--nproc-per-node", "2"};
  const Words say = {"sh", "-c", kSayPlace};
  const auto first = Run("3", two_ranks, say);
  first->WaitForErr(absl::StrCat("rondarun: leads the job; nodes join it at ", Address()));
  // If a node leaves before all nodes have joined, its number is free for another node.
  const auto gone = Run("3", two_ranks, say);
  first->WaitForErr(" has come, with 2 slots");
  gone->Signal(SIGKILL);
  EXPECT_EQ(gone->Finish(), -SIGKILL);
  first->WaitForErr(" has gone");
  const auto second = Run("3", two_ranks, say);
  first->WaitForErr(" has come, with 2 slots", 2);
  const auto third = Run("3", two_ranks, say);
  int number = 0;
  for (LauncherRun* node : {first.get(), second.get(), third.get()}) {
    EXPECT_EQ(node->Finish(), 0) << node->err();
    Words places;
    for (int rank = 2 * number; rank < 2 * number + 2; ++rank) {
      places.push_back(absl::StrCat("[", rank, "]<stdout>: ", rank, "/6 node ", number, " at ", Address()));
    }
    EXPECT_EQ(node->SortedOut(), places);
    ++number;
  }
  EXPECT_THAT(third->err(), HasSubstr("rondarun: this is node 2 of 3\n"));
}

TEST_F(LauncherNodesTest, NodesWithoutNumbersNeedAsManyRanksEach) {
  const auto first = Run("2", {"--nproc-per-node", "2"}, {"true"});
  first->WaitForErr("rondarun: leads the job");
  const auto second = Run("2", {"--nproc-per-node", "1"}, {"true"});
  for (LauncherRun* node : {first.get(), second.get()}) {
    EXPECT_EQ(node->Finish(), 1);
    EXPECT_THAT(node->LastLine(), AllOf(StartsWith("rondarun: --nproc-per-node is 2 on node "),
                                        HasSubstr(", and 1 on node "), EndsWith(": give the same on all nodes")));
  }
}

TEST_F(LauncherNodesTest, NodeThatWaitsInVainForOthersSaysHowManyHaveCome) {
  const auto node = Run("2", {"--start-timeout", "0.1"}, {"true"});
  EXPECT_EQ(node->Finish(), 1);
  EXPECT_EQ(node->LastLine(), "rondarun: 1 of 2 nodes have come within 100ms (--start-timeout)");
}

TEST_F(LauncherNodesTest, TheJobBeginsWithTheLeastNumberOfNodes) {
  const auto leader = StartLeader("2:3", {"--nproc-per-node", "2"});
  const auto node = Start("2:3", {"--nproc-per-node", "2"});
  AwaitSize(leader.get(), 4);
  const auto third = Start("2:3", {"--nproc-per-node", "2"});
  AwaitSize(leader.get(), 6);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(node->Finish(), 0);
  EXPECT_EQ(third->Finish(), 0);
  EXPECT_THAT(leader->out(), StartsWith("["));
  EXPECT_THAT(leader->out(), Not(HasSubstr("is rank 0 of 2,")));
}

TEST_F(LauncherNodesTest, TheJobGoesOnWithoutANodeThatIsKilledAndTakesAnother) {
  const auto leader = StartLeader("1:2");
  auto node = Start("1:2");
  AwaitSize(leader.get(), 2);
  const std::vector<pid_t> before = Pids(*leader);
  node->Signal(SIGKILL);
  EXPECT_EQ(node->Finish(), -SIGKILL);
  AwaitEpoch(leader.get(), EpochOf(*leader, 2) + 1, 1);
  EXPECT_THAT(leader->err(), HasSubstr("the node has closed the connection"));
  const pid_t leaders = Pids(*leader).back();
  for (const pid_t pid : before) {
    if (pid != leaders) WaitUntil([&] { return !IsRunning(pid); }, "the end of the lost member");
  }
  const int shrunk = EpochOf(*leader, 1);
  node = Start("1:2");
  AwaitEpoch(leader.get(), shrunk + 1, 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
}

TEST_F(LauncherNodesTest, ProcessesOfAllNodesEndWhenTheLeaderIsKilled) {
  const auto leader = StartLeader("2:3");
  const auto node = Start("2:3");
  AwaitSize(leader.get(), 2);
  leader->Signal(SIGKILL);
  EXPECT_EQ(leader->Finish(), -SIGKILL);
  EXPECT_EQ(node->Finish(), 1);
  EXPECT_EQ(node->LastLine(), absl::StrCat("rondarun: the leader of the job at ", Address(),
                                           " is gone, or has given this node up; the members on this node were ended"));
  ExpectNoMemberIsLeft(*leader);
}

TEST_F(LauncherNodesTest, ASignalToTheLeaderEndsTheJobOnAllNodes) {
  const auto leader = StartLeader("2:3");
  const auto node = Start("2:3");
  AwaitSize(leader.get(), 2);
  leader->Signal(SIGTERM);
  EXPECT_EQ(leader->Finish(), 128 + SIGTERM);
  EXPECT_EQ(node->Finish(), 128 + SIGTERM);
  EXPECT_EQ(node->LastLine(), "rondarun: the job has failed: the job was ended: received SIGTERM");
  ExpectNoMemberIsLeft(*leader);
}

TEST_F(LauncherNodesTest, ASignalToANodeMakesItsMembersLeave) {
  const auto leader = StartLeader("2:3", {"--nproc-per-node", "1"});
  const auto second = Start("2:3");
  const auto third = Start("2:3");
  AwaitSize(leader.get(), 3);
  const int full = EpochOf(*leader, 3);
  third->Signal(SIGTERM);
  EXPECT_EQ(third->Finish(), 128 + SIGTERM);
  EXPECT_EQ(third->LastLine(), "rondarun: received SIGTERM; this node has left the job");
  leader->WaitForOut("]<stdout>: left\n");
  AwaitEpoch(leader.get(), full + 1, 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(second->Finish(), 0) << second->err();
}

TEST_F(LauncherNodesTest, AWrongSecretIsRefusedAndTheJobGoesOn) {
  const auto leader = StartLeader("1:3", {}, {"RONDA_JOB_SECRET=f00d"});
  for (const Words& environment : {Words{"RONDA_JOB_SECRET=cafe"}, Words{}}) {
    const auto intruder = Start("1:3", {}, environment);
    EXPECT_EQ(intruder->Finish(), 1);
    EXPECT_EQ(
        intruder->LastLine(),
        absl::StrCat("rondarun: cannot join the job at ", Address(),
                     ": the rondarun there has another RONDA_JOB_SECRET: set it to the same value on every node"));
  }
  const auto node = Start("1:3", {}, {"RONDA_JOB_SECRET=f00d"});
  AwaitSize(leader.get(), 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
  EXPECT_THAT(leader->err(), HasSubstr("rondarun: a node at 127.0.0.1 was refused: it has not proved that it knows "
                                       "RONDA_JOB_SECRET\n"));
}

TEST_F(LauncherNodesTest, OtherHostsNeedASecret) {
  LauncherRun run({"--nnodes", "1:2", "--rdzv-endpoint", "192.0.2.1:29400", "true"}, {.unset = {"RONDA_JOB_SECRET"}});
  EXPECT_EQ(run.Finish(), 1);
  EXPECT_THAT(run.LastLine(), HasSubstr("set RONDA_JOB_SECRET to the same value"));
}

TEST_F(LauncherNodesTest, ANodeTooManyWaitsForRoom) {
  const auto leader = StartLeader("1:2");
  const auto second = Start("1:2");
  AwaitSize(leader.get(), 2);
  const auto impatient = Start("1:2", {"--elastic-timeout", "1"});
  EXPECT_EQ(impatient->Finish(), 1);
  EXPECT_EQ(impatient->LastLine(),
            absl::StrCat("rondarun: could not join the job at ", Address(),
                         " within 1s (--elastic-timeout): the job has 2 nodes, and takes no more (--nnodes)"));
  const auto spare = Start("1:2");
  spare->WaitForErr("cannot be joined yet (the job has 2 nodes, and takes no more (--nnodes)); trying again");
  const int full = EpochOf(*leader, 2);
  second->Signal(SIGKILL);
  AwaitEpoch(leader.get(), full + 2, 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(spare->Finish(), 0) << spare->err();
}

TEST_F(LauncherNodesTest, TooFewNodesEndTheJob) {
  const auto leader = StartLeader("2:3", {"--elastic-timeout", "1"});
  EXPECT_EQ(leader->Finish(), 1);
  EXPECT_EQ(leader->LastLine(),
            "rondarun: too few nodes have come within 1s (--elastic-timeout): 1 node with 1 slot, and the job needs 2 "
            "(--nnodes)");
}

TEST_F(LauncherNodesTest, NodesHearWhyTheJobHasFailed) {
  const Words program = {"sh", "-c", absl::StrCat("until [ -e ", folder_, "/go ]; do sleep 0.01; done; exit 5")};
  const auto leader = Run("2:3", {}, program);
  leader->WaitForErr("leads the job");
  const auto node = Run("2:3", {}, program);
  leader->WaitForErr(" has come, with 1 slot");
  node->WaitForErr("this is node ");
  std::ofstream(folder_ + "/go") << "";
  EXPECT_EQ(leader->Finish(), 5);
  EXPECT_EQ(node->Finish(), 5);
  EXPECT_THAT(node->LastLine(), AllOf(StartsWith("rondarun: the job has failed: "),
                                      HasSubstr("members in a row have ended before they joined the job")));
}

TEST_F(LauncherNodesTest, EachNodeHasItsOwnCommandAndVariables) {
  const auto program = [&](const std::string& greeting) {
    return Words{"sh", "-c", absl::StrCat("echo ", greeting, " $WHO; exec ", kMember, " ", folder_)};
  };
  const auto leader = Run("2:3", {}, program("hello from"), {"WHO=the-leader"});
  leader->WaitForErr("leads the job");
  const auto node = Run("2:3", {"-x", "MORE=1"}, program("greetings from"), {"WHO=the-node"});
  AwaitSize(leader.get(), 2);
  EXPECT_EQ(Finish(leader.get()), 0) << leader->err();
  EXPECT_EQ(node->Finish(), 0) << node->err();
  EXPECT_THAT(leader->out(), AllOf(HasSubstr("]<stdout>: hello from the-leader\n"),
                                   HasSubstr("]<stdout>: greetings from the-node\n")));
}

TEST_F(LauncherNodesTest, AnotherProgramAtTheAddressIsSaid) {
  const UniqueFd other(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(other.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(other.get(), 8), 0);
  ASSERT_EQ(getsockname(other.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string endpoint = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  LauncherRun node({"--nnodes", "1:2", "--rdzv-endpoint", endpoint, "--elastic-timeout", "1", "true"});
  EXPECT_EQ(node.Finish(), 1);
  EXPECT_EQ(node.LastLine(), absl::StrCat("rondarun: could not join the job at ", endpoint,
                                          " within 1s (--elastic-timeout): it does not answer"));
}

TEST_F(LauncherNodesTest, DryRunShowsTheAgentAndListensNowhere) {
  const auto run = Start("1:2", {"--dry-run"});
  EXPECT_EQ(run->Finish(), 0);
  EXPECT_THAT(run->out(), EndsWith("rondarun --agent\n"));
  EXPECT_THAT(run->err(), IsEmpty());
}

}  // namespace
}  // namespace ronda
