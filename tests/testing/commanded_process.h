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

// Reads lines from a descriptor, which it does not own. Thread-compatible.
class LineReader {
 public:
  explicit LineReader(int fd) : fd_(fd) {}

  // The next line, without its end. nullopt: no line came within `timeout`, or the writer has closed its end.
  std::optional<std::string> Next(absl::Duration timeout);

 private:
  const int fd_;
  std::string text_;  // the beginning of a line whose end has not arrived yet
};

// Another process of this test's binary, which runs one of its rank programs (RankProgramMain). The program reads
// commands from its standard input and answers on its standard output; its standard error is this process's.
//
// Thread-compatible. The destructor kills the process if it still runs.
class CommandedProcess {
 public:
  // The number that the inherited descriptor has in the process.
  static constexpr int kInheritedFd = 9;

  CommandedProcess(const std::string& program, const std::vector<std::pair<std::string, std::string>>& env);
  // Starts a process that runs argv, with `env` in addition to this process's variables. The process gets `inherited`
  // as kInheritedFd; -1: no descriptor.
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

  // Kills the process with SIGKILL, and returns when it has ended.
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
