// SPDX-License-Identifier: Apache-2.0

#include "tests/multiprocess/launcher_harness.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/base/files.h"

namespace ronda {
namespace {

constexpr char kLauncher[] = "programs/rondarun/rondarun";

// A test waits this long only if something is wrong.
constexpr absl::Duration kTimeout = absl::Minutes(4);
constexpr int kPollMilliseconds = 5;

struct Ends {
  UniqueFd ours;
  UniqueFd theirs;
};

Ends MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) abort();
  return {.ours = UniqueFd(ends[0]), .theirs = UniqueFd(ends[1])};
}

Ends MakeTerminal() {
  int ours = -1;
  int theirs = -1;
  if (openpty(&ours, &theirs, nullptr, nullptr, nullptr) != 0) abort();
  fcntl(ours, F_SETFD, FD_CLOEXEC);
  fcntl(theirs, F_SETFD, FD_CLOEXEC);
  return {.ours = UniqueFd(ours), .theirs = UniqueFd(theirs)};
}

// Returns the names of the environment variables that hold exported bash functions, which tests inherit from Bazel's
// scripts.
std::vector<std::string> ExportedFunctions() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view name = absl::string_view(*variable).substr(0, absl::string_view(*variable).find('='));
    if (absl::StrContains(name, "%%")) names.emplace_back(name);
  }
  return names;
}

// Returns a descriptor from which `text` can be read, followed by end-of-file.
UniqueFd InputWith(const std::string& text) {
  Ends pipe = MakePipe();
  // One write() suffices, because every test's text fits into a pipe.
  if (write(pipe.theirs.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) abort();
  return std::move(pipe.ours);
}

[[noreturn]] void BecomeLauncher(const std::vector<std::string>& arguments, const LauncherRun::Options& options, int in,
                                 int out, int err) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (const std::string& name : ExportedFunctions()) unsetenv(name.c_str());
  setenv("OMP_NUM_THREADS", "1", /*overwrite=*/0);  // otherwise rondarun prints a line about it
  for (const std::string& name : options.unset) unsetenv(name.c_str());
  for (const std::string& variable : options.environment) {
    const size_t equals = variable.find('=');
    setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
  if (options.in_child) options.in_child();
  std::vector<char*> argv = {const_cast<char*>(kLauncher)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(kLauncher, argv.data());
  _exit(99);
}

int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

}  // namespace

LauncherRun::LauncherRun(const std::vector<std::string>& arguments, const Options& options) {
  const UniqueFd input = InputWith(options.input);
  Ends out = options.output == Output::kTerminal ? MakeTerminal() : MakePipe();
  Ends err = MakePipe();
  const int err_fd = options.output == Output::kTerminal ? out.theirs.get() : err.theirs.get();
  pid_ = fork();
  if (pid_ < 0) abort();
  if (pid_ == 0) BecomeLauncher(arguments, options, input.get(), out.theirs.get(), err_fd);
  out_.descriptor = std::move(out.ours);
  err_.descriptor = std::move(err.ours);
}

LauncherRun::~LauncherRun() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void LauncherRun::Read(Collected* from) {
  char buffer[65536];
  const ssize_t count = read(from->descriptor.get(), buffer, sizeof(buffer));
  if (count > 0) {
    from->text.append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    from->descriptor.Reset();  // the end, which a terminal reports as an error
  }
}

bool LauncherRun::ReadUntil(const std::function<bool()>& condition, const std::string& awaited) {
  const absl::Time deadline = SteadyNow() + kTimeout;
  while (!condition()) {
    if (SteadyNow() > deadline) {
      ADD_FAILURE() << "waited in vain for " << awaited << "\nstdout:\n" << out() << "\nstderr:\n" << err();
      return false;
    }
    pollfd requests[] = {{.fd = reading_out_ ? out_.descriptor.get() : -1, .events = POLLIN, .revents = 0},
                         {.fd = err_.descriptor.get(), .events = POLLIN, .revents = 0}};
    poll(requests, 2, kPollMilliseconds);
    if (requests[0].revents != 0) Read(&out_);
    if (requests[1].revents != 0) Read(&err_);
  }
  return true;
}

int LauncherRun::Finish() {
  int status = 0;
  if (!ReadUntil([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, "the end of rondarun")) return -1;
  pid_ = -1;
  reading_out_ = true;
  ReadUntil([this] { return !out_.descriptor.valid() && !err_.descriptor.valid(); }, "the end of the output");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void LauncherRun::StopReadingOut() {
  reading_out_ = false;
  // Opens the write end again to see whether the pipe is full. The number of bytes in it does not show that, because
  // few bytes can fill a pipe.
  const UniqueFd writer(
      open(absl::StrCat("/proc/self/fd/", out_.descriptor.get()).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  const auto is_full = [&] {
    pollfd request{.fd = writer.get(), .events = POLLOUT, .revents = 0};
    return poll(&request, 1, 0) == 0;
  };
  ReadUntil(is_full, "a full pipe");
}

void LauncherRun::WaitForOut(const std::string& text, int times) {
  ReadUntil([&] { return CountOf(out(), text) >= times; }, absl::StrCat("\"", text, "\" on stdout"));
}

void LauncherRun::WaitForErr(const std::string& text, int times) {
  ReadUntil([&] { return CountOf(err(), text) >= times; }, absl::StrCat("\"", text, "\" on stderr"));
}

void LauncherRun::Signal(int signo) const { kill(pid_, signo); }

std::vector<std::string> LauncherRun::SortedOut() const {
  std::vector<std::string> lines = Lines(out());
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::string LauncherRun::LastLine() const {
  const std::vector<std::string> lines = Lines(err());
  return lines.empty() ? "" : lines.back();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

pid_t NumberAfter(const std::string& text, const std::string& label) {
  const size_t at = text.find(label);
  pid_t number = 0;
  if (at != std::string::npos) {
    const size_t begin = at + label.size();
    const size_t end = text.find_first_not_of("0123456789", begin);
    if (absl::SimpleAtoi(text.substr(begin, end - begin), &number)) return number;
  }
  ADD_FAILURE() << "no number after \"" << label << "\" in:\n" << text;
  return 0;
}

bool IsRunning(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat")).value_or("");
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return false;
  const char state = stat[name_end + 2];
  return state != 'Z' && state != 'X';
}

void WaitUntil(const std::function<bool()>& condition, const std::string& awaited) {
  const absl::Time deadline = SteadyNow() + kTimeout;
  while (!condition()) {
    if (SteadyNow() > deadline) {
      ADD_FAILURE() << "waited in vain for " << awaited;
      return;
    }
    absl::SleepFor(absl::Milliseconds(kPollMilliseconds));
  }
}

std::string AwaitAllRanks(int rank_count) {
  static int calls = 0;
  const std::string folder = absl::StrCat(::testing::TempDir(), "/ranks.", getpid(), ".", calls++);
  return absl::StrCat("mkdir -p ", folder, "; : > ", folder, "/$RONDA_RANK; until [ $(ls ", folder, " | wc -l) -eq ",
                      rank_count, " ]; do sleep 0.01; done; ");
}

std::vector<std::string> Shell(int rank_count, const std::string& script) {
  return {"-np", absl::StrCat(rank_count), "sh", "-c", script};
}

}  // namespace ronda
