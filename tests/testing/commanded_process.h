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

// Reads lines from a descriptor, and does not close the descriptor. Thread-compatible.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // Returns the next line without its line end. Returns nullopt if no line came within `timeout`, or if the writer has
  // closed the pipe.
  std::optional<std::string> Next(absl::Duration timeout);

 private:
  const int fd_;
  std::string text_;  // the beginning of a line whose end has not arrived yet
};

// Another process of this test's binary, which runs one of the binary's rank programs (RankProgramMain). The program
// reads commands from its standard input, and answers on its standard output. The program shares standard error with
// this process.
//
// Thread-compatible. The destructor kills the process if it still runs.
class CommandedProcess {
 public:
  // The descriptor number of `inherited` in the started process.
  static constexpr int kInheritedFd = 9;

  CommandedProcess(const std::string& program, const std::vector<std::pair<std::string, std::string>>& env);
  // Starts a process that runs argv, with `env` in addition to this process's variables. The process gets the
  // descriptor `inherited` under the number kInheritedFd. -1 means no descriptor.
  CommandedProcess(std::vector<std::string> argv, const std::vector<std::pair<std::string, std::string>>& env,
                   int inherited);
  ~CommandedProcess();
  CommandedProcess(const CommandedProcess&) = delete;
  CommandedProcess& operator=(const CommandedProcess&) = delete;

  pid_t pid() const { return pid_; }

  void Tell(const std::string& line);

  // Returns the next line of the process's answers. If no line comes within a minute, the test fails and the result is
  // empty.
  std::string Hear();

  // Returns all output until the process has ended, or has written nothing for a minute.
  std::string Rest();

  // Waits for the end of the process, and returns the status from waitpid().
  int Wait();

  // Kills the process with SIGKILL, and waits for its end.
  void Kill();

  // Closes the process's standard input, and expects that the process then ends without an error.
  void ExpectEnd();

 private:
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
  std::optional<LineReader> answers_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_COMMANDED_PROCESS_H_
