// SPDX-License-Identifier: Apache-2.0

// Tests rondarun as a shell job on a terminal: the keys that stop it, and a rank that asks questions.
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

constexpr char kStopKey[] = "\x1a";
constexpr char kInterruptKey[] = "\x03";

// A shell with job control on a terminal. This class acts as the user, who reads what the terminal shows, and types.
class ShellOnATerminal {
 public:
  ShellOnATerminal() {
    pid_ = forkpty(&ours_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    signal(SIGINT, SIG_DFL);  // the test may be a script's job in the background
    setenv("PS1", "ready> ", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
    execlp("bash", "bash", "--norc", "--noprofile", "--noediting", "-i", nullptr);
    _exit(99);
  }
  ~ShellOnATerminal() {
    kill(pid_, SIGHUP);
    close(ours_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void Type(const std::string& keys) {
    EXPECT_EQ(write(ours_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  void WaitUntilAJobHasTheTerminal() {
    WaitUntil([this] { return tcgetpgrp(ours_) != pid_; }, "a job in the foreground");
  }

  // Types `keys` repeatedly until the terminal shows `text`.
  void TypeUntil(const std::string& keys, const std::string& text) {
    WaitUntil(
        [&] {
          Type(keys);
          return Read() && absl::StrContains(shown_, text);
        },
        text);
  }

  // Waits until the terminal shows `text` after the text that the previous call waited for.
  void WaitFor(const std::string& text) {
    WaitUntil([&] { return Read() && absl::StrContains(shown_, text); }, absl::StrCat(text, " behind:\n", shown_));
    const size_t at = shown_.find(text);
    if (at != std::string::npos) shown_.erase(0, at + text.size());
  }

  // Waits until `enough` accepts the text that the terminal has shown since the previous call, and returns this text.
  std::string TakeWhen(const std::function<bool(const std::string& shown)>& enough) {
    WaitUntil([&] { return Read() && enough(shown_); }, absl::StrCat("more than:\n", shown_));
    return std::exchange(shown_, {});
  }

 private:
  // Reads the available text without waiting.
  bool Read() {
    pollfd request = {.fd = ours_, .events = POLLIN, .revents = 0};
    char buffer[4096];
    while (poll(&request, 1, 0) == 1) {
      const ssize_t bytes = read(ours_, buffer, sizeof(buffer));
      if (bytes <= 0) break;
      shown_.append(buffer, static_cast<size_t>(bytes));
    }
    return true;
  }

  pid_t pid_ = -1;
  int ours_ = -1;
  std::string shown_;
};

// Returns the letter for the state of a process in /proc. T means stopped.
char StateOf(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? '?' : stat[name_end + 2];
}

// The pids of the two ranks, from lines such as "pid=4711." that they print.
struct Pids {
  pid_t first = 0;
  pid_t second = 0;

  bool AreAll(char state) const { return StateOf(first) == state && StateOf(second) == state; }
  bool AreStopped() const { return AreAll('T'); }
  bool GoOn() const { return StateOf(first) != 'T' && StateOf(second) != 'T'; }
};

// Waits for the lines with the pids of both ranks, and for the text `also`, in any order.
Pids WaitForPids(ShellOnATerminal* shell, const std::string& also = "") {
  const std::string ranks[] = {"[0]<stdout>: pid=", "[1]<stdout>: pid="};
  const std::string shown = shell->TakeWhen([&](const std::string& text) {
    const auto is_whole = [&](const std::string& mark) {
      const size_t at = text.find(mark);
      return at != std::string::npos && text.find(".\r\n", at) != std::string::npos;
    };
    const size_t begin = std::min(text.find(ranks[0]), text.size());  // before that, the shell has shown the command
    return is_whole(ranks[0]) && is_whole(ranks[1]) && text.find(also, begin) != std::string::npos;
  });
  return {.first = NumberAfter(shown, ranks[0]), .second = NumberAfter(shown, ranks[1])};
}

const char kLauncher[] = "programs/rondarun/rondarun";

// The ranks in these tests start no child processes, because a shell that has just started a child waits for it in a
// state that does not count as stopped.
class StopKeyTest : public ::testing::TestWithParam<std::string> {};

TEST_P(StopKeyTest, StopsAllRanksAndFgLetsThemGoOn) {
  ShellOnATerminal shell;
  shell.Type(absl::StrCat(kLauncher, GetParam(), " -np 2 sh -c 'echo pid=$$.; exec sleep 1000'\r"));
  const Pids pids = WaitForPids(&shell);
  for (const char* command : {"fg\r", "bg\r"}) {
    shell.Type(kStopKey);
    shell.WaitFor("Stopped");
    WaitUntil([&] { return pids.AreStopped(); }, "ranks that are stopped");
    shell.Type(command);
    WaitUntil([&] { return pids.GoOn(); }, "ranks that go on");
  }
  shell.Type("fg\r");
  shell.WaitUntilAJobHasTheTerminal();
  shell.Type(kInterruptKey);
  shell.WaitFor("rondarun: the job was ended: received SIGINT");
}

// The ranks are children of rondarun, children of an agent, or members of an elastic job.
INSTANTIATE_TEST_SUITE_P(All, StopKeyTest, ::testing::Values("", " --launcher ssh", " --min-np 1"));

// Rank 0 or member 0 asks two questions. When it asks the second one, it already has the terminal.
constexpr char kQuestions[] =
    "printf \"pid=%s.\\n\" $$; if [ $LOCAL_RANK = 0 ]; then printf \"name? \"; read name; echo hello $name; "
    "printf \"more? \"; read more; echo got $more; fi";

// The options of a job, and rondarun's last line after the interrupt key was pressed while rank 0 had the terminal.
struct Asking {
  std::string options;
  std::string interrupted;
};

class LauncherTerminalTest : public ::testing::TestWithParam<Asking> {
 protected:
  const std::string launcher_ = absl::StrCat(kLauncher, GetParam().options);
};

TEST_P(LauncherTerminalTest, RankZeroAsksOnTheTerminal) {
  ShellOnATerminal shell;
  shell.Type(absl::StrCat(launcher_, " -np 2 sh -c '", kQuestions, "'; echo code=$?.\r"));
  shell.WaitFor("[0]<stdout>: name? ");
  shell.Type("ada\r");
  shell.WaitFor("[0]<stdout>: hello ada\r\n");
  shell.WaitFor("[0]<stdout>: more? ");
  shell.Type("no\r");
  shell.WaitFor("[0]<stdout>: got no\r\n");
  shell.WaitFor("code=0.");
}

TEST_P(LauncherTerminalTest, StopKeyAndFgWhileRankZeroHasTheTerminal) {
  ShellOnATerminal shell;
  shell.Type(absl::StrCat(launcher_, " -np 2 sh -c '", kQuestions, "; exec sleep 1000'\r"));
  const Pids pids = WaitForPids(&shell, "name? ");
  shell.Type(kStopKey);
  shell.WaitFor("Stopped");
  WaitUntil([&] { return pids.AreStopped(); }, "ranks that are stopped");
  shell.Type("fg\r");
  shell.WaitFor("rondarun");
  WaitUntil([&] { return pids.GoOn(); }, "ranks that go on");
  shell.Type("ada\r");
  shell.WaitFor("[0]<stdout>: hello ada\r\n");
  shell.WaitFor("more? ");
  // A background job stops when it reads from the terminal. The shell reports that at one of its next prompts.
  shell.Type(kStopKey);
  shell.WaitFor("Stopped");
  shell.Type("bg\r");
  shell.TypeUntil("\r", "Stopped");
  shell.Type("fg\r");
  shell.WaitFor("rondarun");
  shell.Type("no\r");
  shell.WaitFor("[0]<stdout>: got no\r\n");
  // The key interrupts only rank 0, but the job ends when rank 0 ends.
  shell.Type(kInterruptKey);
  shell.WaitFor(GetParam().interrupted);
}

TEST_P(LauncherTerminalTest, DebuggerOfPythonWorksInRankZero) {
  ShellOnATerminal shell;
  shell.Type(absl::StrCat(launcher_,
                          " -np 2 /usr/bin/python3 -c '\rimport os\ranswer = 41\rrank = os.environ[\"LOCAL_RANK\"]\r"
                          "if rank == \"0\": breakpoint()\rprint(\"rank\", rank, \"ends\")\r'; echo code=$?.\r"));
  shell.WaitFor("(Pdb) ");
  shell.Type("p answer + 1\r");
  shell.WaitFor("[0]<stdout>: 42\r\n");
  shell.WaitFor("(Pdb) ");
  shell.Type("c\r");
  shell.WaitFor("[0]<stdout>: rank 0 ends\r\n");
  shell.WaitFor("code=0.");
}

INSTANTIATE_TEST_SUITE_P(All, LauncherTerminalTest,
                         ::testing::Values(Asking{.options = "", .interrupted = " was killed by signal 2 (SIGINT)"},
                                           Asking{.options = " --min-np 1",
                                                  .interrupted = "rondarun: the job was ended: received SIGINT"}));

// Member 0 has had the terminal before the launcher gets a SIGINT that does not come from the terminal.
TEST(LauncherTerminalOfMembersTest, SigintToTheLauncherLeavesTheMembersTimeToSave) {
  ShellOnATerminal shell;
  shell.Type(absl::StrCat(kLauncher,
                          " --min-np 1 -np 2 sh -c 'if [ $LOCAL_RANK = 0 ]; then printf \"name? \"; read name; "
                          "echo launcher=$PPID.; exec sleep 1000; fi; trap \"echo saved; exit 0\" INT; echo waits; "
                          "while :; do sleep 0.1; done'\r"));
  shell.WaitFor("[1]<stdout>: waits\r\n");
  shell.Type("ada\r");
  const std::string label = "launcher=";
  const std::string shown = shell.TakeWhen([&](const std::string& text) {
    const size_t at = text.find(label);
    return at != std::string::npos && text.find(".\r\n", at) != std::string::npos;
  });
  kill(NumberAfter(shown, label), SIGINT);
  shell.WaitFor("[1]<stdout>: saved\r\n");
  shell.WaitFor("rondarun: the job was ended: received SIGINT");
}

TEST(LauncherTerminalOfMpirunTest, RankZeroHasNoInput) {
  if (access("/usr/bin/mpirun", X_OK) != 0) GTEST_SKIP() << "there is no mpirun on this machine";
  ShellOnATerminal shell;
  shell.Type(absl::StrCat(kLauncher, " --launcher mpirun -np 2 sh -c 'read name || echo no input'; echo code=$?.\r"));
  shell.WaitFor("[0]<stdout>: no input\r\n");
  shell.WaitFor("code=0.");
}

}  // namespace
}  // namespace ronda
