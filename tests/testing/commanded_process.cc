// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/commanded_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(1);

// Returns the two ends of a pipe, which programs started by the test do not inherit.
std::pair<UniqueFd, UniqueFd> MakePipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

std::optional<std::string> LineReader::Next(absl::Duration timeout) {
  const absl::Time end = SteadyNow() + timeout;
  for (;;) {
    if (const size_t length = text_.find('\n'); length != std::string::npos) {
      std::string line = text_.substr(0, length);
      text_.erase(0, length + 1);
      return line;
    }
    pollfd event = {fd_, POLLIN, 0};
    const int64_t left = std::clamp<int64_t>(absl::ToInt64Milliseconds(end - SteadyNow()), 0, 1 << 30);
    if (poll(&event, 1, static_cast<int>(left)) != 1) return std::nullopt;
    char buffer[4096];
    const ssize_t bytes = read(fd_, buffer, sizeof(buffer));
    if (bytes <= 0) return std::nullopt;
    text_.append(buffer, static_cast<size_t>(bytes));
  }
}

CommandedProcess::CommandedProcess(const std::string& program,
                                   const std::vector<std::pair<std::string, std::string>>& env)
    : CommandedProcess(ArgumentsOfRankProgram(program), env, -1) {}

CommandedProcess::CommandedProcess(std::vector<std::string> argv,
                                   const std::vector<std::pair<std::string, std::string>>& env, int inherited) {
  auto [its_input, to] = MakePipe();
  auto [from, its_output] = MakePipe();
  to_ = std::move(to);
  from_ = std::move(from);
  answers_.emplace(from_.get());
  std::vector<std::string> environment = EnvironmentOfRanks(env);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, its_input.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, its_output.get(), STDOUT_FILENO);
  if (inherited >= 0) posix_spawn_file_actions_adddup2(&actions, inherited, kInheritedFd);
  const int error =
      posix_spawn(&pid_, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  EXPECT_EQ(error, 0) << argv[0] << " cannot be started";
  if (error != 0) pid_ = -1;
}

CommandedProcess::~CommandedProcess() { Kill(); }

void CommandedProcess::Tell(const std::string& line) {
  const std::string text = line + "\n";
  EXPECT_EQ(write(to_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size())) << line;
}

std::string CommandedProcess::Hear() {
  std::optional<std::string> line = answers_->Next(kTimeout);
  EXPECT_TRUE(line.has_value()) << "process " << pid_ << " does not answer";
  return line.value_or("");
}

std::string CommandedProcess::Rest() {
  std::string all;
  while (const std::optional<std::string> line = answers_->Next(kTimeout)) absl::StrAppend(&all, *line, "\n");
  return all;
}

int CommandedProcess::Wait() {
  int status = -1;
  const pid_t pid = std::exchange(pid_, -1);
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

void CommandedProcess::Kill() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void CommandedProcess::ExpectEnd() {
  to_.Reset();
  // Expects no further line, because every command has been answered.
  EXPECT_EQ(answers_->Next(kTimeout), std::nullopt);
  EXPECT_EQ(Wait(), 0);
}

}  // namespace ronda::testing
