// SPDX-License-Identifier: Apache-2.0

// Tests that jobs of rondarun --min-np continue when ranks die. The ranks are real processes, which the tests kill.
#include <dirent.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kMember[] = "tests/multiprocess/elastic_member";

// Makes members wait only one second for a member that dies while they connect.
const LauncherRun::Options kShortStart = {.environment = {"RONDA_START_TIMEOUT=1s"}};

// An elastic job whose members run elastic_member, which the test controls through signals and files.
class ElasticRun {
 public:
  explicit ElasticRun(const std::vector<std::string>& options, const std::vector<std::string>& events = {},
                      const LauncherRun::Options& surroundings = {}) {
    static int runs = 0;
    folder_ = absl::StrCat(::testing::TempDir(), "/elastic.", getpid(), ".", runs++);
    std::filesystem::create_directories(folder_);
    std::vector<std::string> words = options;
    words.insert(words.end(), {kMember, folder_});
    words.insert(words.end(), events.begin(), events.end());
    run_ = std::make_unique<LauncherRun>(words, surroundings);
  }

  // Waits until `members` members are in epoch `epoch`.
  void AwaitEpoch(int epoch, int members) {
    for (int rank = 0; rank < members; ++rank) {
      run_->WaitForOut(absl::StrCat(": epoch ", epoch, " is rank ", rank, " of ", members, ", pid "));
    }
  }

  // Returns the pid of a member that is or was in the epoch.
  pid_t PidOf(int member, int epoch) const {
    for (const std::string& line : Lines(run_->out())) {
      if (absl::StartsWith(line, absl::StrCat("[", member, "]<stdout>: epoch ", epoch, " is "))) {
        return NumberAfter(line, ", pid ");
      }
    }
    ADD_FAILURE() << "no member " << member << " in epoch " << epoch << ":\n" << run_->out() << run_->err();
    return -1;
  }

  // Sends a signal to a member that is in the epoch.
  void Signal(int member, int epoch, int signo) const {
    const pid_t pid = PidOf(member, epoch);
    if (pid > 0) kill(pid, signo);
  }

  // Tells all members to finish their program. Returns rondarun's exit code.
  int Finish() {
    std::ofstream(folder_ + "/finish") << "";
    return run_->Finish();
  }

  LauncherRun& operator*() { return *run_; }
  LauncherRun* operator->() { return run_.get(); }

 private:
  std::string folder_;
  std::unique_ptr<LauncherRun> run_;
};

// The parent of the members: rondarun itself or, as on other hosts, an agent.
enum class Parent { kRondarun, kAgent };

std::vector<std::string> Joined(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class LauncherElasticTest : public ::testing::TestWithParam<Parent> {
 protected:
  static std::vector<std::string> Options(std::vector<std::string> options) {
    if (GetParam() == Parent::kAgent) options.insert(options.end(), {"--launcher", "ssh"});
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Under, LauncherElasticTest, ::testing::Values(Parent::kRondarun, Parent::kAgent),
                         [](const auto& info) { return info.param == Parent::kRondarun ? "Rondarun" : "Agent"; });

class DeadMemberTest : public ::testing::TestWithParam<int> {};

TEST_P(DeadMemberTest, IsReplacedWhileTheOthersGoOn) {
  const int dead = GetParam();
  ElasticRun run({"-np", "3", "--min-np", "2"});
  run.AwaitEpoch(0, 3);
  const pid_t pid = run.PidOf(dead, 0);
  kill(pid, SIGKILL);
  run.AwaitEpoch(1, 2);
  run.AwaitEpoch(2, 3);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), HasSubstr(absl::StrCat("rondarun: member ", dead, " (pid ", pid, ", host ")));
  EXPECT_THAT(run->err(), HasSubstr(") was killed by signal 9 (SIGKILL)\n"));
  const std::vector<std::string> survivors =
      dead == 0 ? std::vector<std::string>{"1", "2"} : std::vector<std::string>{"0", dead == 1 ? "2" : "1"};
  const std::string both = absl::StrCat(survivors[0], ", ", survivors[1]);
  EXPECT_THAT(run->err(), HasSubstr(absl::StrCat("rondarun: epoch 1 begins with members ", both, "\n")));
  EXPECT_THAT(run->err(), HasSubstr("rondarun: member 3 is started\n"));
  EXPECT_THAT(run->err(), HasSubstr(absl::StrCat("rondarun: epoch 2 begins with members ", both, ", 3\n")));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(run->out(), HasSubstr(absl::StrCat("[", survivors[static_cast<size_t>(rank)],
                                                   "]<stdout>: epoch 2 is rank ", rank, " of 3")));
  }
  EXPECT_THAT(run->out(), HasSubstr("[3]<stdout>: finished\n"));
}

INSTANTIATE_TEST_SUITE_P(Each, DeadMemberTest, ::testing::Values(0, 1, 2));

TEST_P(LauncherElasticTest, JobOutlivesManyDeathsWithoutGrowing) {
  const auto count_descriptors = [](pid_t pid) {
    const std::filesystem::directory_iterator entries(absl::StrCat("/proc/", pid, "/fd"));
    return std::distance(begin(entries), end(entries));
  };
  ElasticRun run(Options({"-np", "3", "--min-np", "3", "--blacklist-cooldown-range", "0", "0"}));
  run.AwaitEpoch(0, 3);
  const auto before = count_descriptors(run->pid());
  std::vector<int> members = {0, 1, 2};
  for (int epoch = 0; epoch < 12; ++epoch) {
    const size_t victim = static_cast<size_t>(epoch * 2) % 3;  // members of every age
    run.Signal(members[victim], epoch, SIGKILL);
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(victim));
    members.push_back(3 + epoch);
    run.AwaitEpoch(epoch + 1, 3);
  }
  EXPECT_EQ(count_descriptors(run->pid()), before);
  EXPECT_EQ(run.Finish(), 0);
}

TEST_P(LauncherElasticTest, ADeathWhileMembersMeetIsGotOver) {
  ElasticRun run(Options({"-np", "4", "--min-np", "2"}), {"vanish=1"}, kShortStart);
  run.AwaitEpoch(0, 4);
  run.Signal(0, 0, SIGKILL);
  run->WaitForErr("epoch 2 begins with members 1, 3");
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), HasSubstr("epoch 1 begins with members 1, 2, 3\n"));
}

TEST_P(LauncherElasticTest, AMemberThatDoesNotLeaveTheFailedEpochIsKilled) {
  ElasticRun run(Options({"-np", "3", "--min-np", "1"}));
  run.AwaitEpoch(0, 3);
  run.Signal(2, 0, SIGUSR2);
  run.Signal(1, 0, SIGKILL);
  run->WaitForErr("epoch 1 begins with members 0");
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), HasSubstr(absl::StrCat("rondarun: member 2 (pid ", run.PidOf(2, 0), ", host ")));
  EXPECT_THAT(run->err(), HasSubstr(") did not leave epoch 0 within 5s, as others had; killing it (SIGKILL)"));
}

TEST_P(LauncherElasticTest, AStoppedMemberIsKilledAfterTenSeconds) {
  ElasticRun run(Options({"-np", "3", "--min-np", "2"}));
  run.AwaitEpoch(0, 3);
  // Member 1 is stopped only for a moment, so the launcher does not kill it.
  run.Signal(1, 0, SIGSTOP);
  run.Signal(1, 0, SIGCONT);
  run.Signal(2, 0, SIGSTOP);
  const absl::Time stopped = SteadyNow();
  run.AwaitEpoch(1, 2);
  EXPECT_GE(SteadyNow() - stopped, absl::Seconds(9.9));
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), HasSubstr("member 2 (pid"));
  EXPECT_THAT(run->err(), HasSubstr(") was stopped for 10s; killing it (SIGKILL)"));
  EXPECT_THAT(run->err(), Not(HasSubstr("member 1 (pid")));
}

TEST_P(LauncherElasticTest, TooFewMembersWaitForAReplacement) {
  ElasticRun run(Options({"-np", "2", "--min-np", "2"}));
  run.AwaitEpoch(0, 2);
  run.Signal(0, 0, SIGKILL);
  run.AwaitEpoch(1, 2);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), HasSubstr("epoch 1 begins with members 1, 2\n"));
}

TEST_P(LauncherElasticTest, TooFewMembersForTooLongEndTheJob) {
  ElasticRun run(
      Options({"-np", "2", "--min-np", "2", "--elastic-timeout", "5", "--blacklist-cooldown-range", "600", "600"}));
  run.AwaitEpoch(0, 2);
  run.Signal(0, 0, SIGKILL);
  EXPECT_EQ(run->Finish(), 1);
  EXPECT_EQ(
      run->LastLine(),
      "rondarun: there were not enough members for 5s (--elastic-timeout): 1 member waits for the others, and the "
      "job needs 2 (--min-np); member 0 was killed by signal 9 (SIGKILL)");
  EXPECT_THAT(run->out(), HasSubstr("[1]<stdout>: end: there were not enough members"));
}

TEST_P(LauncherElasticTest, TheResetLimitEndsTheJob) {
  ElasticRun run(Options({"-np", "3", "--min-np", "2", "--reset-limit", "0"}));
  run.AwaitEpoch(0, 3);
  run.Signal(0, 0, SIGKILL);
  EXPECT_EQ(run->Finish(), 1);
  EXPECT_THAT(run->LastLine(),
              HasSubstr("and --reset-limit 0 has been reached; the last failure: member 0 was killed"));
}

TEST_P(LauncherElasticTest, ThreeFailuresAtOneStepEndTheJobWithTheProgramsCode) {
  ElasticRun run(Options({"-np", "4", "--min-np", "1", "--blacklist-cooldown-range", "600", "600"}), {"crash=20"});
  EXPECT_EQ(run->Finish(), 7);
  EXPECT_THAT(run->LastLine(),
              StartsWith("rondarun: 3 epochs in a row have failed at the same step (the newest that is complete: 20); "
                         "the last failure: member 2 exited with code 7; "));
}

TEST_P(LauncherElasticTest, TheJobGrowsToItsMaximum) {
  ElasticRun run(Options({"-np", "1", "--max-np", "3", "--verbose"}));
  run.AwaitEpoch(0, 1);
  run->WaitForErr("members 0, 1, 2\n");
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), Not(HasSubstr("SIGKILL")));
}

TEST_P(LauncherElasticTest, AMemberThatGetsTheSignalLeavesAndIsNotReplaced) {
  ElasticRun run(Options({"-np", "3", "--min-np", "1"}));
  run.AwaitEpoch(0, 3);
  run.Signal(0, 0, SIGTERM);
  run.AwaitEpoch(1, 2);
  run->WaitForOut("[0]<stdout>: left\n");
  // The launcher does not start a replacement for a member that leaves, so the next epoch has one member.
  run.Signal(1, 1, SIGTERM);
  run.AwaitEpoch(2, 1);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), AllOf(HasSubstr("epoch 1 begins with members 1, 2\n"),
                                HasSubstr("epoch 2 begins with member 2\n"), Not(HasSubstr("is started"))));
}

TEST_P(LauncherElasticTest, NonsenseOnTheSocketEndsTheMember) {
  ElasticRun run(Options({"-np", "3", "--min-np", "2"}));
  run.AwaitEpoch(0, 3);
  run.Signal(1, 0, SIGUSR1);
  run.AwaitEpoch(2, 3);
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_THAT(run->err(), HasSubstr(absl::StrCat("member 1 (pid ", run.PidOf(1, 0), ", host ")));
  EXPECT_THAT(
      run->err(),
      HasSubstr(") has sent nonsense: membership message \"nonsense\": its kind is unknown; rondarun and libronda "
                "must be of the same version; killing"));
}

TEST_P(LauncherElasticTest, SignalsToRondarunEndTheWholeJob) {
  ElasticRun run(Options({"-np", "3", "--min-np", "1"}));
  run.AwaitEpoch(0, 3);
  run->Signal(SIGTERM);
  EXPECT_EQ(run->Finish(), 128 + SIGTERM);
  EXPECT_THAT(run->err(), HasSubstr("received SIGTERM; telling members 0, 1, 2 to end (killed in 5s)"));
  EXPECT_EQ(run->LastLine(), "rondarun: the job was ended: received SIGTERM");
  EXPECT_THAT(run->out(), HasSubstr("]<stdout>: end: the job is ended: rondarun received SIGTERM"));
  EXPECT_THAT(run->err(), Not(HasSubstr("epoch 1")));
}

TEST_P(LauncherElasticTest, MembersEndWhenRondarunIsKilled) {
  ElasticRun run(Options({"-np", "3", "--min-np", "2", "--verbose"}));
  run.AwaitEpoch(0, 3);
  run.Signal(1, 0, SIGKILL);
  run.AwaitEpoch(2, 3);
  const std::vector<pid_t> pids = {run.PidOf(0, 2), run.PidOf(2, 2), run.PidOf(3, 2)};
  const size_t at = run->err().find("job ");
  ASSERT_NE(at, std::string::npos);
  const std::string job = run->err().substr(at + 4, 32);
  run->Signal(SIGKILL);
  EXPECT_EQ(run->Finish(), -SIGKILL);
  for (const pid_t pid : pids) WaitUntil([&] { return !IsRunning(pid); }, "the end of a member");
  const auto is_clean = [&] {
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      if (absl::StrContains(entry.path().string(), job)) return false;
    }
    return true;
  };
  WaitUntil(is_clean, "the end of the job's shared memory");
}

TEST_P(LauncherElasticTest, AFailureInTheLastEpochIsTheJobs) {
  LauncherRun run(
      Joined(Options({"-np", "2", "--min-np", "1"}),
             {"sh", "-c", absl::StrCat(AwaitAllRanks(2), "[ $RONDA_RANK = 0 ] || { echo bad luck >&2; exit 9; }")}));
  const int code = run.Finish();
  // Either member may end first. If member 1 ends first, the launcher replaces it, and later replaces the replacement.
  EXPECT_EQ(code, 9);
  EXPECT_THAT(run.err(), HasSubstr(") exited with code 9; last error: \"bad luck\""));
}

TEST_P(LauncherElasticTest, AMemberHasOneSocketAndItsOwnVariables) {
  // One member is a replacement, because the launcher starts replacements while it already has other members' sockets.
  const std::string flag = absl::StrCat(::testing::TempDir(), "/first.", getpid());
  std::filesystem::remove_all(flag);
  LauncherRun run(Joined(
      Options({"-np", "3", "--min-np", "1"}),
      {"sh", "-c",
       absl::StrCat("echo $(ls -l /proc/self/fd | grep -c socket: ) $(readlink "
                    "/proc/self/fd/$RONDA_MEMBERSHIP_FD | cut -c1-7) $LOCAL_RANK $RANK$WORLD_SIZE; ",
                    "mkdir ", flag, " 2>/dev/null && exit 1; until [ -e ", flag, "/go ]; do sleep 0.01; done")}));
  run.WaitForOut("]<stdout>: ", 4);
  std::ofstream(flag + "/go") << "";
  EXPECT_EQ(run.Finish(), 1) << "members that never join replace nobody";
  for (const std::string& line : Lines(run.out())) {
    EXPECT_THAT(line, MatchesRegex("\\[[0-3]\\]<stdout>: 1 socket: [0-2] ?"));
  }
}

TEST_P(LauncherElasticTest, FilesAndPrefixesAreOfMembers) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/files.", getpid());
  ElasticRun run(Options({"-np", "2", "--min-np", "1", "--output-filename", folder}));
  run.AwaitEpoch(0, 2);
  run.Signal(0, 0, SIGKILL);
  run.AwaitEpoch(2, 2);
  EXPECT_EQ(run.Finish(), 0);
  std::ifstream file(folder + "/rank.2/stdout");
  std::string line;
  std::getline(file, line);
  EXPECT_THAT(line, StartsWith("epoch 2 is rank 1 of 2"));
}

TEST(LocalElasticJobTest, AProgramThatFailsAtItsStartIsNotStartedForEver) {
  LauncherRun run({"-np", "2", "--min-np", "1", "--blacklist-cooldown-range", "0", "0", "sh", "-c", "exit 5"});
  EXPECT_EQ(run.Finish(), 5);
  EXPECT_THAT(run.LastLine(), MatchesRegex("rondarun: [34] members in a row have ended before they joined the job: .*; "
                                           "the last one: member [0-9] exited with code 5"));
  LauncherRun missing({"-np", "2", "--min-np", "1", "./no-such-command"});
  EXPECT_EQ(missing.Finish(), 127);
  EXPECT_THAT(missing.err(), StartsWith("rondarun: command not found: ./no-such-command"));
}

TEST(LocalElasticJobTest, DryRunShowsTheFirstMembers) {
  LauncherRun run({"-np", "2", "--max-np", "4", "--dry-run", "./train"});
  EXPECT_EQ(run.Finish(), 0);
  EXPECT_EQ(Lines(run.out()).size(), 2);
  EXPECT_THAT(run.out(), HasSubstr("RONDA_LOCAL_RANK=1"));
}

}  // namespace
}  // namespace ronda
