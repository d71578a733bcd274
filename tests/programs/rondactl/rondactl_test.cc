// SPDX-License-Identifier: Apache-2.0

// Tests rondactl on real jobs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/ronda.hpp"
#include "programs/monitor/jobs/job_sampler.h"
#include "programs/monitor/jobs/rank_control.h"
#include "programs/monitor/jobs/rank_reader.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using testing::ExpectRankProgramSucceeds;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kRondactl[] = "programs/rondactl/rondactl";
constexpr char kMonitor[] = "XDG_RUNTIME_DIR=$TEST_TMPDIR programs/monitor/serve/ronda-monitor";
constexpr int kSteps = 20;

std::string OwnJob() { return std::getenv("RONDA_JOB_ID"); }

// Runs `rondactl <words>`, and returns its output, with the exit code at the end.
std::string Rondactl(const std::string& words) {
  FILE* const pipe = popen(absl::StrCat(kRondactl, " ", words, " 2>&1; echo exit code $?").c_str(), "r");
  std::string text;
  char buffer[256];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
  pclose(pipe);
  return text;
}

// A ronda-monitor for the job that `word` names. It ends when the job ends.
class Monitor {
 public:
  explicit Monitor(const std::string& word) : output_(popen(absl::StrCat(kMonitor, " ", word, " 2>&1").c_str(), "r")) {}
  ~Monitor() {
    if (output_ == nullptr) return;
    EXPECT_EQ(pclose(output_), 0);
  }
  Monitor(Monitor&& other) noexcept : output_(std::exchange(other.output_, nullptr)) {}
  Monitor& operator=(Monitor&&) = delete;

  std::string ReadLine() {
    char buffer[1024];
    return std::fgets(buffer, sizeof(buffer), output_) != nullptr ? buffer : "";
  }

 private:
  FILE* output_;
};

// Runs `rondactl why`, at most 40 times, until the answer contains all `parts`. Returns the last answer.
std::string AskWhyUntil(const std::vector<std::string>& parts) {
  std::string answer;
  for (int i = 0; i < 40; ++i) {
    answer = Rondactl("why " + OwnJob());
    const auto has = [&](const std::string& part) { return absl::StrContains(answer, part); };
    if (std::all_of(parts.begin(), parts.end(), has)) break;
  }
  return answer;
}

void Step() {
  float value = 1;
  allreduce(tensor("gradient", &value), {Op::Sum});
}

// Makes steps until `done` returns true on any rank.
void StepUntil(const std::function<bool()>& done, const std::function<void()>& compute) {
  for (float sum = 0; sum == 0;) {
    compute();
    sum = done() ? 1 : 0;
    allreduce(tensor("gradient", &sum), {Op::Sum});
  }
}

// Makes steps with `compute` on all ranks, while a thread of rank 0 calls `observe`.
void StepWhile(const std::function<void()>& observe, const std::function<void()>& compute) {
  init();
  std::atomic<bool> done{false};
  std::thread observer;
  if (rank() == 0) {
    observer = std::thread([&] {
      observe();
      done = true;
    });
  }
  StepUntil([&] { return done.load(); }, compute);
  if (observer.joinable()) observer.join();
  shutdown();
}

// -- why --

// The coordinator is stopped before a step, in which the other ranks then wait for it.
void StopsTheCoordinator() {
  init();
  for (int i = 0; i < kSteps; ++i) Step();
  std::thread observer;
  if (rank() == 0) raise(SIGSTOP);
  if (rank() == 2) {
    observer = std::thread([] {
      const auto ranks = FindRanks(OfJob(OwnJob()));
      ASSERT_THAT(ranks, SizeIs(3));
      const pid_t pid = ranks[0]->identity().process.pid;
      const std::string blamed = absl::StrCat("pid ", pid, "): its process is stopped");
      EXPECT_THAT(AskWhyUntil({"for rank 0 (", blamed}), AllOf(HasSubstr("for rank 0 ("), HasSubstr(blamed)));
      EXPECT_THAT(Rondactl("ranks " + OwnJob()), HasSubstr("stopped"));
      kill(pid, SIGCONT);
    });
  }
  Step();
  if (observer.joinable()) observer.join();
  shutdown();
}

TEST(RondactlTest, NamesAStoppedCoordinator) { ExpectRankProgramSucceeds("stops_the_coordinator", 3); }

void IsLateByTwentyMilliseconds() {
  StepWhile(
      [] {
        EXPECT_THAT(AskWhyUntil({"rank 2 (", "came last into"}),
                    AllOf(HasSubstr("rank 2 ("), HasSubstr("came last into")));
      },
      [] { absl::SleepFor(absl::Milliseconds(rank() == 2 ? 20 : 0)); });
}

TEST(RondactlTest, NamesARankThatIsLateInEachStep) { ExpectRankProgramSucceeds("is_late_by_twenty_milliseconds", 4); }

// Binds this process to one core, and starts processes that keep this core busy until this process ends.
void ShareACoreWithHogs(int hogs) {
  cpu_set_t cores, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  int core = 0;
  while (CPU_ISSET(core, &cores) == 0) ++core;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  for (int i = 0; i < hogs; ++i) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::atomic<unsigned> turns{0};; ++turns) {
    }
  }
}

void UseTheCpuFor(absl::Duration time) {
  const clock_t end = clock() + static_cast<clock_t>(absl::ToDoubleSeconds(time) * CLOCKS_PER_SEC);
  while (clock() < end) {
  }
}

void SharesItsCore() {
  if (std::string(std::getenv("RONDA_RANK")) == "1") ShareACoreWithHogs(8);
  StepWhile(
      [] {
        const std::vector<std::string> parts = {"rank 1 (", "its process is starved of CPU"};
        EXPECT_THAT(AskWhyUntil(parts), AllOf(HasSubstr(parts[0]), HasSubstr(parts[1])));
      },
      [] {
        if (rank() == 1) UseTheCpuFor(absl::Milliseconds(3));
      });
}

TEST(RondactlTest, NamesARankWhoseCoreOthersUse) { ExpectRankProgramSucceeds("shares_its_core", 2); }

// No rank is consistently late. A rank is late only by chance, or because no core is free for it.
void IsUniform() {
  StepWhile(
      [] {
        JobSampler sampler(FindRanks(OfJob(OwnJob())));
        for (int i = 0; i < 80; ++i) {
          sampler.Sample(FlightNow());
          const JobSnapshot job = sampler.Snapshot();
          if (job.straggler.why != Holdup::kStarved) {
            ASSERT_NE(job.straggler.kind, StragglerVerdict::Kind::kChronic) << "rank " << job.straggler.rank;
          }
          absl::SleepFor(JobSampler::kPeriod);
        }
        EXPECT_GT(sampler.Snapshot().buckets_measured, StragglerWatch::kChronicWindows * StragglerWatch::kWindowSteps);
      },
      [] { absl::SleepFor(absl::Milliseconds(20)); });
}

TEST(RondactlTest, UniformJobRaisesNoAlarm) { ExpectRankProgramSucceeds("is_uniform", 4); }

// -- top --

void IsShown() {
  StepWhile(
      [] {
        const std::string text = Rondactl("top --once " + OwnJob());
        EXPECT_THAT(text, HasSubstr(": 2 of 2 ranks on this host, "));
        EXPECT_THAT(text, HasSubstr("\n    0 "));
        EXPECT_THAT(text, HasSubstr("\n    1 "));
        EXPECT_THAT(text, HasSubstr("exit code 0"));
        EXPECT_EQ(text.find('\x1b'), std::string::npos);
      },
      [] { absl::SleepFor(absl::Milliseconds(1)); });
}

TEST(RondactlTest, TopPrintsATable) { ExpectRankProgramSucceeds("is_shown", 2); }

// A rondactl on a terminal. This class acts as the user, who reads what the terminal shows, and types.
class OnATerminal {
 public:
  explicit OnATerminal(const std::vector<std::string>& words) {
    EXPECT_EQ(openpty(&ours_, &theirs_, nullptr, nullptr, nullptr), 0);
    tcgetattr(theirs_, &before_);
    pid_ = fork();
    if (pid_ != 0) return;
    login_tty(theirs_);
    std::vector<char*> argv = {const_cast<char*>(kRondactl)};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(kRondactl, argv.data());
    _exit(99);
  }
  ~OnATerminal() {
    kill(pid_, SIGKILL);
    close(ours_);
    close(theirs_);
  }

  // Waits until the terminal has shown `text`.
  void WaitFor(const std::string& text) {
    char buffer[4096];
    while (!absl::StrContains(shown_, text)) {
      const ssize_t bytes = read(ours_, buffer, sizeof(buffer));
      if (bytes <= 0) break;
      shown_.append(buffer, static_cast<size_t>(bytes));
    }
    EXPECT_THAT(shown_, HasSubstr(text));
  }
  void Type(char key) { EXPECT_EQ(write(ours_, &key, 1), 1); }
  int ExitCode() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  // Returns whether the terminal has its original settings again.
  bool IsRestored() const {
    termios now = {};
    tcgetattr(theirs_, &now);
    return now.c_lflag == before_.c_lflag && now.c_cc[VSUSP] == before_.c_cc[VSUSP];
  }

 private:
  int ours_ = -1;
  int theirs_ = -1;
  pid_t pid_ = -1;
  termios before_ = {};
  std::string shown_;
};

void IsShownOnATerminal() {
  StepWhile(
      [] {
        for (const char key : {'q', '\x03'}) {
          OnATerminal top({"top", OwnJob()});
          top.WaitFor("\x1b[?1049h");
          top.WaitFor("2 of 2 ranks");
          EXPECT_FALSE(top.IsRestored());
          top.Type(key);
          top.WaitFor("\x1b[?1049l");
          EXPECT_EQ(top.ExitCode(), 0);
          EXPECT_TRUE(top.IsRestored());
        }
      },
      [] { absl::SleepFor(absl::Milliseconds(1)); });
}

TEST(RondactlTest, TopLeavesTheTerminalAsItWas) { ExpectRankProgramSucceeds("is_shown_on_a_terminal", 2); }

// -- trace --

// The folder belongs to this test, and the name to this job.
std::string TracePath() { return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", OwnJob(), "-trace.json"); }
std::string TraceOfRank(int rank) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", OwnJob(), "-trace.rank", rank, ".json");
}

void IsTracedForAWhile() {
  StepWhile(
      [] {
        EXPECT_THAT(Rondactl(absl::StrCat("trace on ", OwnJob(), " --file ", TracePath())),
                    AllOf(HasSubstr("rank 0 writes " + TraceOfRank(0)), HasSubstr("rank 1 writes " + TraceOfRank(1)),
                          HasSubstr("exit code 0")));
        EXPECT_THAT(Rondactl(absl::StrCat("trace on ", OwnJob(), " --file ", TracePath())),
                    AllOf(HasSubstr("rank 1: a timeline is being written to " + TraceOfRank(1) + " already"),
                          HasSubstr("exit code 1")));
        EXPECT_THAT(Rondactl("trace off " + OwnJob()),
                    AllOf(HasSubstr("rank 0 writes no timeline any more"),
                          HasSubstr("rank 1 writes no timeline any more"), HasSubstr("exit code 0")));
        for (const int rank : {0, 1}) {
          const std::string trace = ReadFile(TraceOfRank(rank)).value_or("");
          EXPECT_THAT(trace, AllOf(HasSubstr("\"gradient\""), HasSubstr("\"ALLREDUCE\""))) << rank;
          EXPECT_TRUE(absl::EndsWith(absl::StripAsciiWhitespace(trace), "]")) << "a whole one";
        }
        const size_t bytes = ReadFile(TraceOfRank(0)).value_or("").size();
        Rondactl("ranks " + OwnJob());  // takes a second, in which the ranks make steps
        EXPECT_EQ(ReadFile(TraceOfRank(0)).value_or("").size(), bytes) << "it has ended";
      },
      [] { absl::SleepFor(absl::Milliseconds(1)); });
}

TEST(RondactlTest, TraceIsOfTheTimeBetweenOnAndOff) {
  ExpectRankProgramSucceeds("is_traced_for_a_while", 2);
  ExpectRankProgramSucceeds("is_traced_for_a_while", 2, {.env = {{"RONDA_LOCK_AFTER", "0"}}});
}

// Asks for a trace in a folder that does not exist, and for a trace of both ranks while this process has a request to
// rank 1 pending.
void CannotBeTraced() {
  StepWhile(
      [] {
        EXPECT_THAT(Rondactl(absl::StrCat("trace on ", OwnJob(), " --file /nowhere/t.json")),
                    AllOf(HasSubstr("rank 0: cannot create /nowhere/t.rank0.json"),
                          HasSubstr("rank 1: cannot create /nowhere/t.rank1.json"), HasSubstr("exit code 1")));
        const auto ranks = FindRanks(OfJob(OwnJob()));
        ASSERT_THAT(ranks, SizeIs(2));
        const auto other = RankControl::Open(*ranks[1]);
        ASSERT_TRUE(other.ok()) << other.status();
        EXPECT_THAT(Rondactl(absl::StrCat("trace on ", OwnJob(), " --file ", TracePath())),
                    AllOf(HasSubstr("rank 1: another process asks it at this moment"), HasSubstr("exit code 1")));
        EXPECT_FALSE(std::filesystem::exists(TraceOfRank(0))) << "no rank was asked";
      },
      [] { absl::SleepFor(absl::Milliseconds(1)); });
}

TEST(RondactlTest, TraceNamesTheRankThatCannot) { ExpectRankProgramSucceeds("cannot_be_traced", 2); }

// Both ranks are computing when rondactl asks them for a trace.
void IsTracedLater() {
  init();
  Step();
  if (rank() == 0) {
    EXPECT_THAT(Rondactl(absl::StrCat("trace on ", OwnJob(), " --file ", TracePath())), HasSubstr("exit code 0"));
  }
  for (int i = 0; i < kSteps; ++i) Step();
  barrier();
  const std::string trace = TraceOfRank(rank());
  EXPECT_TRUE(std::filesystem::exists(trace));
  shutdown();
  EXPECT_THAT(ReadFile(trace).value_or(""), HasSubstr("\"ALLREDUCE\""));
}

TEST(RondactlTest, TraceOfARankThatComputesBeginsWithItsNextTensor) { ExpectRankProgramSucceeds("is_traced_later", 2); }

TEST(RondactlTest, TraceHasToBeOnOrOff) {
  for (const char* words : {"trace", "trace maybe", "trace off --file a", "trace on --file", "ranks --file a"}) {
    EXPECT_THAT(Rondactl(words), AllOf(HasSubstr("is no command"), HasSubstr("exit code 2"))) << words;
  }
}

// -- stop --

void StepsOn() {
  StepWhile([] { EXPECT_THAT(Rondactl("stop " + OwnJob()), HasSubstr("the job's launcher is not rondarun")); },
            [] { absl::SleepFor(absl::Milliseconds(1)); });
}

TEST(RondactlTest, StopNamesAnotherLauncher) { ExpectRankProgramSucceeds("steps_on", 2); }

void SaysItsJobAndStepsOn() {
  init();
  if (rank() == 0) {
    const char* const job = getenv("RONDA_JOB_ID");  // null in a job over ssh
    printf("job %s\n", job == nullptr ? "" : job);
    fflush(stdout);
  }
  StepUntil([] { return false; }, [] { absl::SleepFor(absl::Milliseconds(1)); });
}

TEST(RondactlTest, StopEndsAJobWhoseRanksAreNoChildrenOfRondarun) {
  const std::string program = absl::StrCat(std::filesystem::read_symlink("/proc/self/exe").string(),
                                           " --rank_program=says_its_job_and_steps_on");
  const std::vector<std::vector<std::string>> commands = {
      {"-np", "2", "sh", "-c", program + "; echo over"},
      {"-np", "1", "-H", "localhost:1", "--launcher", "ssh", "sh", "-c", "exec " + program}};
  for (const std::vector<std::string>& command : commands) {
    LauncherRun run(command);
    run.WaitForOut("job ");
    EXPECT_THAT(Rondactl(absl::StrCat("stop ", run.pid())),
                HasSubstr(absl::StrCat("rondarun, process ", run.pid(), ", has been told to end the job")));
    EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  }
}

TEST(RondactlTest, StopEndsAJobOfRondarun) {
  LauncherRun run(
      {"-np", "2", std::filesystem::read_symlink("/proc/self/exe"), "--rank_program=says_its_job_and_steps_on"});
  run.WaitForOut("job ");
  run.WaitForOut("\n");
  const std::string job = run.out().substr(run.out().find("job ") + 4, 32);
  EXPECT_THAT(Rondactl("stop " + job),
              HasSubstr(absl::StrCat("rondarun, process ", run.pid(), ", has been told to end the job")));
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
  EXPECT_EQ(run.LastLine(), "rondarun: the job was ended: received SIGTERM");
  EXPECT_THAT(Rondactl("stop " + job), HasSubstr("you run no job on this host that has the name or pid "));
}

// -- names --

TEST(RondactlTest, JobIsFoundByItsNameAndByItsProcesses) {
  const std::string name = absl::StrCat("named-", getpid());
  const std::string config = absl::StrCat(::testing::TempDir(), "/config.", getpid(), ".yaml");
  std::ofstream(config) << "name: " << name << "\n";
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  LauncherRun run({"--config-file", config, "-np", "2", self, "--rank_program=says_its_job_and_steps_on"});
  run.WaitForOut("job ");
  run.WaitForOut("\n");
  const std::string id = run.out().substr(run.out().find("job ") + 4, 8);
  const std::string head = absl::StrCat("job ", name, " (", id, "): 2 of 2 ranks on this host, ");
  const std::string origin = absl::StrCat("ago by rondarun, process ", run.pid(), ": ", self, " --rank_program=");
  std::vector<Monitor> monitors;
  for (const std::string& word : {name, absl::StrCat(run.pid()), id}) {
    EXPECT_THAT(monitors.emplace_back(word).ReadLine(), HasSubstr(absl::StrCat("/ shows job ", id)));
    for (const char* command : {"why ", "top --once ", "ranks "}) {
      EXPECT_THAT(Rondactl(command + word), AllOf(HasSubstr(head), HasSubstr(origin), HasSubstr("exit code 0")));
    }
  }
  EXPECT_THAT(Rondactl("jobs"), ::testing::ContainsRegex(absl::StrCat(id, " +", name, " +2 of 2 +", run.pid(),
                                                                      " +[0-9]+m?", "[0-9]*s +[0-9.]+ ", self)));
  // The error may name other jobs of this user, too.
  LauncherRun second({"-np", "2", self, "--rank_program=says_its_job_and_steps_on"});
  second.WaitForOut("job ");
  EXPECT_THAT(Rondactl("why"), AllOf(HasSubstr("jobs: say which one of "), HasSubstr(name)));
  EXPECT_THAT(Rondactl("stop"), HasSubstr("jobs: say which one of "));
  EXPECT_THAT(Rondactl("stop " + name), HasSubstr("has been told to end the job"));
  EXPECT_EQ(run.Finish(), 128 + SIGTERM);
}

TEST(RondactlTest, OnATerminalTheNewestJobIsTaken) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  LauncherRun first({"-np", "1", self, "--rank_program=says_its_job_and_steps_on"});
  first.WaitForOut("job ");
  LauncherRun second({"-np", "1", self, "--rank_program=says_its_job_and_steps_on"});
  second.WaitForOut("job ");
  OnATerminal why({"why"});
  why.WaitFor(" is the newest of ");
  why.WaitFor("ago by rondarun, process ");
  EXPECT_EQ(why.ExitCode(), 0);
}

}  // namespace
}  // namespace ronda

int main(int argc, char** argv) {
  return ronda::testing::RankProgramMain(argc, argv,
                                         {{"stops_the_coordinator", ronda::StopsTheCoordinator},
                                          {"is_late_by_twenty_milliseconds", ronda::IsLateByTwentyMilliseconds},
                                          {"shares_its_core", ronda::SharesItsCore},
                                          {"is_uniform", ronda::IsUniform},
                                          {"is_shown", ronda::IsShown},
                                          {"is_shown_on_a_terminal", ronda::IsShownOnATerminal},
                                          {"is_traced_for_a_while", ronda::IsTracedForAWhile},
                                          {"cannot_be_traced", ronda::CannotBeTraced},
                                          {"is_traced_later", ronda::IsTracedLater},
                                          {"steps_on", ronda::StepsOn},
                                          {"says_its_job_and_steps_on", ronda::SaysItsJobAndStepsOn}});
}
