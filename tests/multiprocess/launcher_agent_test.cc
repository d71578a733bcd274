// SPDX-License-Identifier: Apache-2.0

// Tests rondarun --agent as the launcher of an elastic job uses it. The test is the launcher, and sends the messages of
// programs/rondarun/supervise/agent.h.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/rondarun/supervise/agent.h"
#include "runtime/base/unique_fd.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Kind = AgentMessage::Kind;

// Returns an id of the usual length that no other test uses.
std::string FreshJobId() {
  static int jobs = 0;
  return absl::StrCat(absl::Hex(getpid(), absl::kZeroPad16), absl::Hex(++jobs, absl::kZeroPad16));
}

class AgentRun {
 public:
  // Starts an agent whose members run `command`. The agent gives up after `timeout` milliseconds without a message.
  AgentRun(std::vector<std::string> command, int timeout, const std::string& job_id = FreshJobId()) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const UniqueFd input(ends[0]);
    to_.Reset(ends[1]);
    run_ = std::make_unique<LauncherRun>(std::vector<std::string>{"--agent"},
                                         LauncherRun::Options{.in_child = [&] { dup2(input.get(), STDIN_FILENO); }});
    run_->WaitForOut(std::string(kAgentGreeting));
    Send({.kind = Kind::kJob, .numbers = {0}, .texts = {"/", "here"}});
    Send({.kind = Kind::kCommand, .numbers = {}, .texts = std::move(command)});
    Send({.kind = Kind::kMembers, .numbers = {20, timeout}, .texts = {job_id}});
    Send({.kind = Kind::kGo, .numbers = {}, .texts = {}});
  }

  void Send(const AgentMessage& message) const {
    const std::string bytes = Encode(message);
    EXPECT_EQ(write(to_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  void StartMember(int member) const { Send({.kind = Kind::kMember, .numbers = {member, 0, 1}, .texts = {}}); }
  void CloseInput() { to_.Reset(); }

  // Waits for a message of this kind whose numbers begin with `numbers`.
  AgentMessage Await(Kind kind, const std::vector<int64_t>& numbers) {
    AgentMessage found;
    const auto is_it = [&](const AgentMessage& message) {
      return message.kind == kind && message.numbers.size() >= numbers.size() &&
             std::equal(numbers.begin(), numbers.end(), message.numbers.begin());
    };
    for (bool has_come = false; !has_come && !::testing::Test::HasFailure();) {
      AgentMessageReader reader(AgentMessageReader::Stream::kAgentsOutput);
      EXPECT_TRUE(reader
                      .Feed(run_->out(),
                            [&](const AgentMessage& message) {
                              if (has_come || !is_it(message)) return;
                              has_come = true;
                              found = message;
                            })
                      .ok());
      // The agent sends kAlive messages all the time, so the wait for the next one reads new output.
      if (!has_come) run_->WaitForOut(Encode({.kind = Kind::kAlive, .numbers = {}, .texts = {}}), ++signs_);
    }
    return found;
  }

  LauncherRun* operator->() const { return run_.get(); }

 private:
  UniqueFd to_;
  std::unique_ptr<LauncherRun> run_;
  int signs_ = 0;
};

constexpr int kNever = 0;

TEST(AgentOfMembersTest, TellsWhatMembersSayAndHowTheyFare) {
  AgentRun agent({"sh", "-c", "kill -STOP $$; exit 3"}, kNever);
  agent.StartMember(7);
  agent.Await(Kind::kRankStart, {7});
  agent.Await(Kind::kMotion, {7, 1});
  agent.Send({.kind = Kind::kMemberMessage, .numbers = {7}, .texts = {"change"}});
  agent.Send({.kind = Kind::kMemberSignal, .numbers = {7, SIGCONT}, .texts = {}});
  EXPECT_EQ(agent.Await(Kind::kRankEnd, {7}).number(2), 3);
  agent.CloseInput();
  EXPECT_EQ(agent->Finish(), 0);
}

TEST(AgentOfMembersTest, AMemberWhoseProgramIsMissingIsNotStarted) {
  AgentRun agent({"/no/such/program"}, kNever);
  agent.StartMember(4);
  const AgentMessage answer = agent.Await(Kind::kNotStarted, {4});
  EXPECT_EQ(answer.number(1), 127);
  EXPECT_THAT(answer.text(0), HasSubstr("could not be started: command not found: /no/such/program"));
}

TEST(AgentOfMembersTest, EndsWithItsMembersWhenTheLauncherIsGone) {
  AgentRun agent({"sleep", "600"}, kNever);
  agent.StartMember(0);
  const auto pid = static_cast<pid_t>(agent.Await(Kind::kRankStart, {0}).number(1));
  agent.CloseInput();
  EXPECT_EQ(agent->Finish(), 0);
  WaitUntil([&] { return kill(pid, 0) != 0; }, "the end of the member");
}

TEST(AgentOfMembersTest, EndsWithItsMembersWhenTheLauncherIsSilent) {
  AgentRun agent({"sleep", "600"}, /*timeout=*/300);
  agent.StartMember(0);
  const auto pid = static_cast<pid_t>(agent.Await(Kind::kRankStart, {0}).number(1));
  EXPECT_EQ(agent->Finish(), 1);
  EXPECT_EQ(agent->LastLine(), "rondarun: the launcher has given no sign of life");
  WaitUntil([&] { return kill(pid, 0) != 0; }, "the end of the member");
}

TEST(AgentOfMembersTest, ASuccessorEndsAnAgentThatDoesNotKnowThatItsLauncherIsGone) {
  const std::string job_id = FreshJobId();
  AgentRun lost({"sleep", "600"}, kNever, job_id);
  lost.StartMember(0);
  const auto pid = static_cast<pid_t>(lost.Await(Kind::kRankStart, {0}).number(1));
  AgentRun successor({"true"}, kNever, job_id);
  successor.StartMember(1);
  EXPECT_EQ(successor.Await(Kind::kRankEnd, {1}).number(2), 0);
  EXPECT_EQ(lost->Finish(), -SIGKILL);
  WaitUntil([&] { return kill(pid, 0) != 0; }, "the end of the member");
}

TEST(AgentOfMembersTest, SignsOfLifeOfTheLauncherKeepIt) {
  AgentRun agent({"sleep", "600"}, /*timeout=*/2000);
  agent.StartMember(0);
  agent.Await(Kind::kRankStart, {0});
  for (int sign = 1; sign <= 150; ++sign) {
    agent.Send({.kind = Kind::kAlive, .numbers = {}, .texts = {}});
    agent->WaitForOut(Encode({.kind = Kind::kAlive, .numbers = {}, .texts = {}}), sign);
  }
  agent.Send({.kind = Kind::kMemberSignal, .numbers = {0, SIGTERM}, .texts = {}});
  EXPECT_EQ(agent.Await(Kind::kRankEnd, {0}).number(3), SIGTERM);
}

}  // namespace
}  // namespace ronda
