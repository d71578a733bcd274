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

  // Waits for the end of the launcher and of its output. Returns its exit code, or minus the signal that killed it.
  int Finish();

  // Waits until the launcher has printed `text` `times` times to stdout, or to stderr.
  void WaitForOut(const std::string& text, int times = 1);
  void WaitForErr(const std::string& text, int times = 1);

  // Reads output until `condition` holds, and returns whether it holds. If it does not hold in time, the test fails
  // with a text that names `awaited`.
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

  // Lines of out(), or of err(), sorted: the order between ranks is open.
  std::vector<std::string> SortedOut() const;

  // The last line of err(), without newline.
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

// The lines of `text`.
std::vector<std::string> Lines(const std::string& text);

// Returns the number that follows `label` in `text`. If there is none, the test fails and the result is 0.
pid_t NumberAfter(const std::string& text, const std::string& label);

// Whether a process runs. A process that has ended does not run, even before its parent has waited for it.
bool IsRunning(pid_t pid);

// Waits until `condition` holds. If this takes too long, the test fails with a text that names `awaited`.
void WaitUntil(const std::function<bool()>& condition, const std::string& awaited);

// {"-np", "<rank_count>", "sh", "-c", script}
std::vector<std::string> Shell(int rank_count, const std::string& script);

// Returns a command for the scripts of `rank_count` ranks, with "; " at its end. In it each rank waits for all others,
// for instance until all have set their traps. Each call makes a new barrier.
std::string AwaitAllRanks(int rank_count);

}  // namespace ronda

#endif  // RONDA_TESTS_MULTIPROCESS_LAUNCHER_HARNESS_H_
