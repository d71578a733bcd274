// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_TESTS_MULTIPROCESS_LAUNCHER_HARNESS_H_
#define RONDA_TESTS_MULTIPROCESS_LAUNCHER_HARNESS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/base/unique_fd.h"

namespace ronda {

// Runs the real rondarun with the given arguments, and collects its output.
//
//   LauncherRun run({"-np", "2", "sh", "-c", "echo hello"});
//   EXPECT_EQ(run.Finish(), 0);
//   EXPECT_EQ(run.out(), ...);
//
// A wait that takes longer than kTimeout ends with a test failure, which shows the output so far. Thread-compatible.
// The destructor kills the launcher.
class LauncherRun {
 public:
  enum class Output { kPipes, kTerminal };

  struct Options {
    std::vector<std::string> environment;  // "NAME=value", in addition to the test's own
    std::vector<std::string> unset;        // names of variables to drop
    Output output = Output::kPipes;        // a terminal is both stdout and stderr; out() returns its text
    std::string input;                     // for the launcher's stdin
    std::function<void()> in_child;        // runs in the launcher's process before it becomes rondarun
  };

  explicit LauncherRun(const std::vector<std::string>& arguments) : LauncherRun(arguments, Options()) {}
  LauncherRun(const std::vector<std::string>& arguments, const Options& options);
  ~LauncherRun();
  LauncherRun(const LauncherRun&) = delete;
  LauncherRun& operator=(const LauncherRun&) = delete;

  // Waits for the end of the launcher and of its output. Returns the launcher's exit code, or minus the signal that
  // killed the launcher.
  int Finish();

  // Waits until the launcher has printed `text` `times` times to stdout, or to stderr.
  void WaitForOut(const std::string& text, int times = 1);
  void WaitForErr(const std::string& text, int times = 1);

  // Reads output until `condition` holds, and returns whether it holds. If `condition` does not hold in time, the test
  // fails with a text that names `awaited`.
  bool ReadUntil(const std::function<bool()>& condition, const std::string& awaited);

  // Closes the test's end of the pipe that the launcher has as stdout.
  void CloseOut() { out_.descriptor.Reset(); }

  // Stops reading the launcher's stdout until StartReadingOut() or Finish(). Returns when the pipe is full.
  void StopReadingOut();
  void StartReadingOut() { reading_out_ = true; }

  void Signal(int signo) const;
  pid_t pid() const { return pid_; }

  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

  // Returns the lines of out() in sorted order, because the ranks' lines may come in any order.
  std::vector<std::string> SortedOut() const;

  // Returns the last line of err(), without the newline.
  std::string LastLine() const;

 private:
  struct Collected {
    UniqueFd descriptor;
    std::string text;
  };

  void Read(Collected* from);

  pid_t pid_ = -1;
  bool reading_out_ = true;
  Collected out_;
  Collected err_;
};

// Returns the lines of `text`.
std::vector<std::string> Lines(const std::string& text);

// Returns the number that follows `label` in `text`. If no number follows `label`, the test fails and the result is 0.
pid_t NumberAfter(const std::string& text, const std::string& label);

// Returns whether a process runs. A process that has ended does not run, even if its parent has not waited for it yet.
bool IsRunning(pid_t pid);

// Waits until `condition` holds. If the wait takes too long, the test fails with a text that names `awaited`.
void WaitUntil(const std::function<bool()>& condition, const std::string& awaited);

// Returns {"-np", "<rank_count>", "sh", "-c", script}.
std::vector<std::string> Shell(int rank_count, const std::string& script);

// Returns a shell command that ends with "; ". The command makes each of `rank_count` ranks wait for all other ranks,
// for example until all ranks have set their traps. Each call of this function makes a new barrier.
std::string AwaitAllRanks(int rank_count);

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_LAUNCHER_HARNESS_H_
