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
// A wait of more than kTimeout fails the test, and shows the output so far. Thread-compatible. The destructor kills the
// launcher.
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

  // Waits until the launcher has ended and its output is closed. Returns its exit code, or minus the signal that killed
  // it.
  int Finish();

  // Waits until the launcher has printed `text` to stdout (or stderr) `times` times.
  void WaitForOut(const std::string& text, int times = 1);
  void WaitForErr(const std::string& text, int times = 1);

  // Reads output until `condition` holds, and returns true. If it does not hold in time, returns false, and fails the
  // test with a message that names `awaited`.
  bool ReadUntil(const std::function<bool()>& condition, const std::string& awaited);

  // Closes the test's end of the launcher's stdout pipe.
  void CloseOut() { out_.descriptor.Reset(); }

  // Stops reading the launcher's stdout until StartReadingOut() or Finish(), and waits until the pipe is full.
  void StopReadingOut();
  void StartReadingOut() { reading_out_ = true; }

  void Signal(int signo) const;
  pid_t pid() const { return pid_; }

  const std::string& out() const { return out_.text; }
  const std::string& err() const { return err_.text; }

  // Returns the lines of out() in sorted order, because the lines of different ranks come in any order.
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

// Returns the number that follows `label` in `text`. If there is none, fails the test and returns 0.
pid_t NumberAfter(const std::string& text, const std::string& label);

// Returns whether a process is running. A process that has ended is not, even if its parent has not waited for it yet.
bool IsRunning(pid_t pid);

// Waits until `condition` holds. If that takes too long, fails the test with a message that names `awaited`.
void WaitUntil(const std::function<bool()>& condition, const std::string& awaited);

// Returns {"-np", "<rank_count>", "sh", "-c", script}.
std::vector<std::string> Shell(int rank_count, const std::string& script);

// Returns a shell command, ending in "; ", that makes each of `rank_count` ranks wait for all others, for example until
// all of them have set their traps. Each call of this function returns a new barrier.
std::string AwaitAllRanks(int rank_count);

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_LAUNCHER_HARNESS_H_
