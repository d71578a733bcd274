// SPDX-License-Identifier: Apache-2.0

// A process that a test starts, and controls through lines of text.
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

// Reads lines from a file descriptor, which it does not close. Thread-compatible.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // Returns the next line without its newline, or nullopt if no line arrives within `timeout` or the writer has closed
  // the pipe.
  std::optional<std::string> Next(absl::Duration timeout);

 private:
  const int fd_;
  std::string text_;  // the beginning of a line whose end has not arrived yet
};

// A child process that runs one of the rank programs of this test binary (RankProgramMain), or any other program. The
// program reads commands from its standard input, and answers on its standard output. It shares standard error with
// this process.
//
// Thread-compatible. The destructor kills the process if it still runs.
class CommandedProcess {
 public:
  // The number of the descriptor `inherited` in the started process.
  static constexpr int kInheritedFd = 9;

  CommandedProcess(const std::string& program, const std::vector<std::pair<std::string, std::string>>& env);
  // Starts a process that runs argv, with `env` in addition to this process's variables. The process inherits the
  // descriptor `inherited` as descriptor kInheritedFd; -1 means none.
  CommandedProcess(std::vector<std::string> argv, const std::vector<std::pair<std::string, std::string>>& env,
                   int inherited);
  ~CommandedProcess();
  CommandedProcess(const CommandedProcess&) = delete;
  CommandedProcess& operator=(const CommandedProcess&) = delete;

  pid_t pid() const { return pid_; }

  void Tell(const std::string& line);

  // Returns the next line that the process prints. If no line arrives within a minute, fails the test and returns "".
  std::string Hear();

  // Returns the remaining output. Stops reading when the process ends, or has written nothing for a minute.
  std::string Rest();

  // Waits for the process to end, and returns its status from waitpid().
  int Wait();

  // Kills the process with SIGKILL, and waits for it to end.
  void Kill();

  // Closes the process's standard input, and expects the process to exit without an error.
  void ExpectEnd();

 private:
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
  std::optional<LineReader> answers_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_COMMANDED_PROCESS_H_
