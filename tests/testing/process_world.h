// SPDX-License-Identifier: Apache-2.0

// Starts jobs of N ranks inside one test, without a launcher. Every rank is a process, as in real jobs.
#ifndef RONDA_TESTS_TESTING_PROCESS_WORLD_H_
#define RONDA_TESTS_TESTING_PROCESS_WORLD_H_

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda::testing {

struct ProcessJob {
  int size = 1;
  std::vector<std::string> argv;                         // argv[0] is the path of the program
  std::vector<std::pair<std::string, std::string>> env;  // added to this process's environment
  absl::Duration timeout = absl::Seconds(120);           // processes that are still running then are killed
};

struct ProcessResult {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;      // 0 if it exited
  std::string output;  // standard output and standard error, interleaved
};

struct JobResult {
  std::string job_id;
  std::vector<ProcessResult> ranks;
  std::vector<std::string> left_in_shared_memory;  // files of this job under /dev/shm
};

// Returns the environment for a process that a test starts: this process's variables without those of an outer job,
// followed by `added`.
std::vector<std::string> EnvironmentOfRanks(const std::vector<std::pair<std::string, std::string>>& added);

// Returns pointers to the strings, for posix_spawn. The strings must outlive the pointers.
std::vector<char*> Pointers(std::vector<std::string>& strings);

// Returns the command line with which this binary runs the rank program `name`.
std::vector<std::string> ArgumentsOfRankProgram(const std::string& name);

// Runs argv once per rank, with RONDA_RANK, RONDA_SIZE and a new RONDA_JOB_ID, and waits for all ranks to end.
JobResult RunProcesses(const ProcessJob& job);

// The function that a rank runs in a test. If a gtest expectation in this function fails, the rank fails.
struct RankProgram {
  std::string name;
  std::function<void()> body;
};

// The main function of a test whose ranks are processes of the same binary. Runs one of `programs` if RunRankProgram
// started this process, and otherwise the tests.
int RankProgramMain(int argc, char** argv, const std::vector<RankProgram>& programs);

// Runs the rank program `name` on `size` ranks. `job.argv` and `job.size` are ignored.
JobResult RunRankProgram(const std::string& name, int size, ProcessJob job = {});

// Calls RunRankProgram, and expects that every rank ends without an error.
void ExpectRankProgramSucceeds(const std::string& name, int size, ProcessJob job = {});

// Returns a port on the loopback interface that no process listens on.
std::string FreePort();

// The following functions are for jobs that the launcher of an MPI implementation starts. Every rank is a process.

// Returns the path of this MPI's launcher on Debian. The path does not depend on the machine's default MPI.
std::string PathOfMpirun(MpiFlavor flavor);

// Returns whether this MPI's launcher is installed.
bool HasMpirun(MpiFlavor flavor);

// Runs argv on `size` ranks. The result interleaves the ranks' outputs. REQUIRES: HasMpirun(flavor).
ProcessResult RunUnderMpirun(MpiFlavor flavor, int size, const std::vector<std::string>& argv);

// A forked child of this process that runs one function, sends the function's result through a pipe, and exits. Tests
// use a ForkedChild for a process that must die.
//
// A ForkedChild must be created while this process has a single thread. The destructor kills the process if it still
// runs.
class ForkedChild {
 public:
  // `body` calls this function to make the parent's WaitUntilReady() return.
  using SayReady = std::function<void()>;

  explicit ForkedChild(const std::function<std::string(const SayReady& say_ready)>& body);
  ~ForkedChild();
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;

  pid_t pid() const { return pid_; }

  // Waits until the child has called say_ready, or has ended.
  void WaitUntilReady();

  void Kill(int signal) const { kill(pid_, signal); }

  // Returns the result of `body`, or "" if the child was killed.
  std::string Result();

 private:
  pid_t pid_ = -1;
  int ready_pipe_ = -1;
  int result_pipe_ = -1;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_PROCESS_WORLD_H_
