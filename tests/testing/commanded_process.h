// SPDX-License-Identifier: Apache-2.0

// A process that a test starts, and controls line by line.
#ifndef RONDA_TESTS_TESTING_COMMANDED_PROCESS_H_
#define RONDA_TESTS_TESTING_COMMANDED_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/base/unique_fd.h"

namespace ronda::testing {

// Reads lines from a descriptor that others own. Thread-compatible.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // The next line, without its end. nullopt: no line came within `timeout`, or the writer has closed its end.
  std::optional<std::string> Next(absl::Duration timeout);

 private:
  const int fd_;
  std::string text_;  // that no line end has followed yet
};

// Another process of this test's binary, which runs one of its rank programs (RankProgramMain). The program reads
// commands from its standard input and answers on its standard output; its standard error is this process's.
//
// Thread-compatible. The destructor kills the process if it still runs.
class CommandedProcess {
 public:
  // The number of a further descriptor that the process inherits.
  static constexpr int kInheritedFd = 9;

  CommandedProcess(const std::string& program, const std::vector<std::pair<std::string, std::string>>& env);
  // A process that runs argv, with `env` in addition to this process's variables, and gets `inherited` as kInheritedFd;
  // -1: no descriptor.
  CommandedProcess(std::vector<std::string> argv, const std::vector<std::pair<std::string, std::string>>& env,
                   int inherited);
  ~CommandedProcess();
  CommandedProcess(const CommandedProcess&) = delete;
  CommandedProcess& operator=(const CommandedProcess&) = delete;

  pid_t pid() const { return pid_; }

  void Tell(const std::string& line);

  // The next line of its answers. If no line comes within a minute, the test fails, and the line is empty.
  std::string Hear();

  // All its output until it has ended, or has written nothing for a minute.
  std::string Rest();

  // Waits for its end, and returns the status from waitpid().
  int Wait();

  // Kills it with SIGKILL, and returns when it has ended.
  void Kill();

  // Closes its standard input. The process should then end without an error.
  void ExpectEnd();

 private:
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
  std::optional<LineReader> answers_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_COMMANDED_PROCESS_H_
