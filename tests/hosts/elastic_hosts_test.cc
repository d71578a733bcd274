// SPDX-License-Identifier: Apache-2.0

// Tests elastic jobs on several hosts, over OpenSSH: members die, and hosts are lost or cut off, come back, join and
// leave.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/ronda.hpp"
#include "client/ronda/elastic.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Joined;
using ::testing::Not;
using testing::Words;

constexpr char kFinishVariable[] = "TEST_FINISH";

// -- The members --

struct Counter {
  std::vector<float> total = {0.0f};
  std::vector<float> gradient = {0.0f};
  void step() { total[0] += gradient[0]; }
};

// The program of a member. Counts steps until the finish file exists. After the first step of each epoch, prints the
// member's rank and the number of ranks. In each step the ranks together add 1, however many there are.
void CountSteps() {
  Counter counter;
  std::int64_t finish = 0;
  elastic::State state({tensor("total", counter.total)}, &finish);
  const auto end = elastic::run(state, [&](const elastic::Membership& now) {
    DistributedOptimizerOptions sum;
    sum.op = Op::Sum;
    DistributedOptimizer optimizer(counter, {tensor("gradient", counter.gradient)}, sum);
    for (bool is_told = false; finish == 0;) {
      counter.gradient[0] = now.rank == 0 ? 1.0f : 0.0f;
      std::int64_t wanted = access(std::getenv(kFinishVariable), F_OK) == 0 ? 1 : 0;
      allreduce(tensor("finish", &wanted, {1}), {Op::Max});
      optimizer.gradient_ready("gradient");
      optimizer.step();
      finish = wanted;
      if (!is_told) {
        std::cout << absl::StrCat("size ", size(), " local size ", local_size(), " rank ", rank(), " local rank ",
                                  local_rank(), " pid ", getpid(), " at ", absl::ToUnixMillis(SteadyNow()), ";\n")
                  << std::flush;
        is_told = true;
      }
      state.step_done();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  if (end == elastic::End::left) {
    std::cout << "left\n" << std::flush;
    return;
  }
  EXPECT_EQ(counter.total[0], static_cast<float>(state.step())) << "a step was lost, or done twice";
  std::cout << "finished\n" << std::flush;
  shutdown();
}

// -- The tests --

class ElasticHostsTest : public testing::SshHostsTest {
 protected:
  void SetUp() override {
    SshHostsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    finish_ = directory_ + "/finish";
  }

  // Starts a job with these options.
  std::unique_ptr<LauncherRun> Start(const Words& options) const { return Run(options, Program()); }

  std::unique_ptr<LauncherRun> Run(const Words& options, const Words& program) const {
    Words words = {"--ssh-port",          absl::StrCat(servers_->port()),
                   "--ssh-identity-file", servers_->identity(),
                   "--grace-period",      "1"};
    words = Joined(Joined(words, options), program);
    LauncherRun::Options surroundings = SshOptions();
    for (const std::string& variable :
         {absl::StrCat(kFinishVariable, "=", finish_), std::string("RONDA_HEARTBEAT=200ms"),
          std::string("RONDA_HEARTBEAT_TIMEOUT=2s")}) {
      surroundings.environment.push_back(variable);
    }
    return std::make_unique<LauncherRun>(Joined({"-x", kFinishVariable}, words), surroundings);
  }

  static Words Program() { return {std::filesystem::read_symlink("/proc/self/exe"), "--rank_program=count_steps"}; }

  // Returns options for `each` ranks on each of the two hosts. The first ranks are on the first host.
  Words OnBoth(int each) const {
    return {"-H", absl::StrCat(hosts_->AddressOf(0), ":", each, ",", hosts_->AddressOf(1), ":", each)};
  }

  // Waits until all ranks have made a step in each of `times` epochs of `size` ranks. After a death, a test must not
  // wait for an epoch without the replacement, which may join before slow survivors.
  static void AwaitSize(LauncherRun* run, int size, int times = 1) {
    run->WaitForOut(absl::StrCat("size ", size, " local size "), size * times);
  }

  // Tells all members to finish their program. Returns rondarun's exit code.
  int Finish(LauncherRun* run) const {
    std::ofstream(finish_) << "";
    return run->Finish();
  }

  // Writes a program that prints the hosts listed in a file, which may change. Returns the path of the program.
  std::string WriteDiscovery() const {
    const std::string script = directory_ + "/hosts.sh";
    std::ofstream(script) << "#!/bin/sh\ncat " << directory_ << "/hosts\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script;
  }
  void List(const std::string& hosts) const {
    const std::string file = directory_ + "/hosts";
    std::ofstream(file + ".new") << hosts;
    std::filesystem::rename(file + ".new", file);
  }

  std::string finish_;
};

TEST_F(ElasticHostsTest, AMemberThatIsKilledIsReplacedOnItsHost) {
  const auto run = Start(Joined({"-np", "4", "--min-np", "2"}, OnBoth(2)));
  AwaitSize(run.get(), 4);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(run->out(), HasSubstr(absl::StrCat("[", rank, "]<stdout>: size 4 local size 2 rank ", rank,
                                                   " local rank ", rank % 2, " pid ")));
  }
  kill(NumberAfter(run->out(), "[3]<stdout>: size 4 local size 2 rank 3 local rank 1 pid "), SIGKILL);
  AwaitSize(run.get(), 4, 2);
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
  EXPECT_THAT(run->err(), HasSubstr(absl::StrCat("rondarun: member 4 is started on host ", hosts_->AddressOf(1))));
  EXPECT_THAT(run->out(), HasSubstr("[4]<stdout>: finished\n"));
}

TEST_F(ElasticHostsTest, TheOldestMemberIsKilledAndAnotherHostBecomesThatOfRankZero) {
  const auto run = Start(Joined({"-np", "2", "--min-np", "1"}, OnBoth(1)));
  AwaitSize(run.get(), 2);
  kill(NumberAfter(run->out(), "[0]<stdout>: size 2 local size 1 rank 0 local rank 0 pid "), SIGKILL);
  AwaitSize(run.get(), 2, 2);
  EXPECT_THAT(run->out(), HasSubstr("[1]<stdout>: size 2 local size 1 rank 0 local rank 0"));
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
}

class CutOffHostTest : public ElasticHostsTest, public ::testing::WithParamInterface<int> {};

// The parameter is the host that is cut off. Rank 0 is on the first host.
TEST_P(CutOffHostTest, IsGoneOnWithoutAndComesBack) {
  const int lost = GetParam();
  const auto run = Start(Joined({"-np", "4", "--min-np", "2", "--blacklist-cooldown-range", "0.1", "1"}, OnBoth(2)));
  AwaitSize(run.get(), 4);
  const absl::Time cut = SteadyNow();
  ASSERT_EQ(hosts_->CutOff(lost), absl::OkStatus());
  AwaitSize(run.get(), 2);
  RecordProperty("milliseconds_from_cut_to_first_step", absl::StrCat(absl::ToInt64Milliseconds(SteadyNow() - cut)));
  EXPECT_THAT(run->err(),
              HasSubstr(absl::StrCat("rondarun: host ", hosts_->AddressOf(lost), " is lost with members ", 2 * lost,
                                     ", ", 2 * lost + 1, ": its agent has given no sign of life for 2s")));
  ASSERT_EQ(hosts_->Reconnect(lost), absl::OkStatus());
  AwaitSize(run.get(), 4, 2);
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
}

INSTANTIATE_TEST_SUITE_P(Each, CutOffHostTest, ::testing::Values(0, 1));

TEST_F(ElasticHostsTest, AHostWhoseProcessesAreKilledIsLostAtOnce) {
  const auto run = Start(Joined({"-np", "4", "--min-np", "2"}, OnBoth(2)));
  AwaitSize(run.get(), 4);
  hosts_->KillAllOn(1);
  AwaitSize(run.get(), 2);
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
  EXPECT_THAT(run->err(),
              HasSubstr(absl::StrCat("rondarun: host ", hosts_->AddressOf(1), " is lost with members 2, 3: ")));
}

TEST_F(ElasticHostsTest, AHostThatCannotBeReachedIsDoneWithout) {
  servers_->Forget(1);
  const auto run = Start(Joined({"-np", "4", "--min-np", "2"}, OnBoth(2)));
  AwaitSize(run.get(), 2);
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
  EXPECT_THAT(run->err(), HasSubstr("Host key verification failed"));
}

TEST_F(ElasticHostsTest, AProgramThatHostsLackEndsTheJobWithTheReason) {
  const auto run = Run(Joined({"-np", "4", "--min-np", "2"}, OnBoth(2)), {"/no/such/trainer"});
  EXPECT_EQ(run->Finish(), 127);
  EXPECT_THAT(run->LastLine(), AllOf(HasSubstr("members in a row have ended before they joined the job"),
                                     HasSubstr("could not be started: "), HasSubstr("/no/such/trainer")));
}

TEST_F(ElasticHostsTest, AMemberThatGetsSigtermLeaves) {
  const auto run = Start(Joined({"-np", "4", "--min-np", "2"}, OnBoth(2)));
  AwaitSize(run.get(), 4);
  kill(NumberAfter(run->out(), "[2]<stdout>: size 4 local size 2 rank 2 local rank 0 pid "), SIGTERM);
  AwaitSize(run.get(), 3);
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
  EXPECT_THAT(run->out(), HasSubstr("[2]<stdout>: left\n"));
  EXPECT_THAT(run->err(), Not(HasSubstr("is started on host")));
}

TEST_F(ElasticHostsTest, AStoppedMemberIsKilledAndReplaced) {
  const auto run = Start(Joined({"-np", "2", "--min-np", "1"}, OnBoth(1)));
  AwaitSize(run.get(), 2);
  kill(NumberAfter(run->out(), "[1]<stdout>: size 2 local size 1 rank 1 local rank 0 pid "), SIGSTOP);
  run->WaitForErr("; killing it (SIGKILL)");
  AwaitSize(run.get(), 2, 2);
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
}

TEST_F(ElasticHostsTest, ProcessesOfAllHostsEndWhenTheLauncherIsKilled) {
  const auto run = Start(Joined({"-np", "4", "--min-np", "2"}, OnBoth(2)));
  AwaitSize(run.get(), 4);
  run->Signal(SIGKILL);
  run->Finish();
  const std::string program = Program().front();
  WaitUntil(
      [&] {
        for (int rank = 0; rank < 4; ++rank) {
          const std::string text = absl::StrCat("rank ", rank, " local rank ", rank % 2, " pid ");
          if (kill(NumberAfter(run->out(), text), 0) == 0) return false;
        }
        return true;
      },
      "the end of all members");
}

TEST_F(ElasticHostsTest, TheJobFollowsTheHostsThatAProgramLists) {
  const std::string first = hosts_->AddressOf(0);
  const std::string second = hosts_->AddressOf(1);
  List(absl::StrCat(first, ":2\n"));
  const auto run = Start({"-np", "2", "--min-np", "1", "--max-np", "4", "--host-discovery-script", WriteDiscovery(),
                          "--slots-per-host", "2"});
  AwaitSize(run.get(), 2);
  List(absl::StrCat("# both\n", first, ":2\n", second, "\n"));
  AwaitSize(run.get(), 4);
  List(absl::StrCat(second, ":2\n"));
  AwaitSize(run.get(), 2, 2);
  for (const int member : {0, 1}) run->WaitForOut(absl::StrCat("[", member, "]<stdout>: left\n"));
  List("nonsense;\n");
  run->WaitForErr("\"nonsense;\"; the hosts stay as they are");
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
  for (const int member : {2, 3}) {
    EXPECT_THAT(run->out(), HasSubstr(absl::StrCat("[", member, "]<stdout>: finished\n")));
  }
}

// Returns the pids of the living members, from the output of rondarun --verbose.
std::vector<pid_t> LivingMembers(const LauncherRun& run) {
  std::vector<pid_t> pids;
  for (const std::string& line : Lines(run.err())) {
    if (!absl::StartsWith(line, "rondarun: member ") || !absl::StrContains(line, " is pid ")) continue;
    const pid_t pid = NumberAfter(line, " is pid ");
    if (kill(pid, 0) == 0) pids.push_back(pid);
  }
  return pids;
}

// At the end, the members check that each step was counted once.
TEST_F(ElasticHostsTest, NoStepIsLostWhileMembersAreKilledAtRandomAndHostsAreCutOff) {
  const auto seed = static_cast<unsigned>(getpid());
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::minstd_rand random(seed);
  const auto run = Start(Joined({"-np", "4", "--min-np", "2", "--verbose"}, OnBoth(2)));
  int times = 0;
  AwaitSize(run.get(), 4, ++times);
  for (const int host : {1, 0}) {
    for (int round = 0; round < 5; ++round) {
      const std::vector<pid_t> members = LivingMembers(*run);
      ASSERT_FALSE(members.empty());
      kill(members[random() % members.size()], SIGKILL);
      AwaitSize(run.get(), 4, ++times);
    }
    ASSERT_EQ(hosts_->CutOff(host), absl::OkStatus());
    run->WaitForErr(absl::StrCat("rondarun: host ", hosts_->AddressOf(host), " is lost"));
    ASSERT_EQ(hosts_->Reconnect(host), absl::OkStatus());
    AwaitSize(run.get(), 4, ++times);
  }
  EXPECT_EQ(Finish(run.get()), 0) << run->out() << run->err();
}

}  // namespace

std::vector<testing::RankProgram> testing::ElasticHostsPrograms() { return {{"count_steps", CountSteps}}; }

}  // namespace ronda
