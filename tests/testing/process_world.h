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
  std::vector<std::pair<std::string, std::string>> env;  // added to this process' environment
  absl::Duration timeout = absl::Seconds(120);           // processes that still run then are killed
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

// Returns the environment for a process that a test starts. The environment has this process's variables, without the
// variables of an outer job, followed by `added`.
std::vector<std::string> EnvironmentOfRanks(const std::vector<std::pair<std::string, std::string>>& added);

// Returns pointers to the strings, for posix_spawn. The strings must outlive the pointers.
std::vector<char*> Pointers(std::vector<std::string>& strings);

// Returns the arguments with which this binary runs the rank program `name`.
std::vector<std::string> ArgumentsOfRankProgram(const std::string& name);

// Runs argv once per rank, with RONDA_RANK, RONDA_SIZE and a separate RONDA_JOB_ID, and waits for all ranks.
JobResult RunProcesses(const ProcessJob& job);

// The function that a rank runs in a test. If a gtest expectation in this function fails, the rank fails.
struct RankProgram {
  std::string name;
  std::function<void()> body;
};

// The main function of a test whose ranks are processes of the same binary. RankProgramMain runs the tests or, if
// RunRankProgram started the process, one of `programs`.
int RankProgramMain(int argc, char** argv, const std::vector<RankProgram>& programs);

// Runs the program of this name on `size` ranks. `job.argv` and `job.size` are ignored.
JobResult RunRankProgram(const std::string& name, int size, ProcessJob job = {});

// Calls RunRankProgram, and expects that every rank ends without an error.
void ExpectRankProgramSucceeds(const std::string& name, int size, ProcessJob job = {});

// Returns a port of the loopback interface on which no process listens.
std::string FreePort();

// The following functions are for jobs whose ranks an MPI's own launcher starts. Every rank is a process.

// Returns Debian's name for this MPI's launcher. The name does not depend on which MPI the administrator has made the
// default.
std::string PathOfMpirun(MpiFlavor flavor);

// Returns whether this MPI's launcher is installed.
bool HasMpirun(MpiFlavor flavor);

// Runs argv on `size` ranks. The output of all ranks is mixed. REQUIRES: HasMpirun(flavor).
ProcessResult RunUnderMpirun(MpiFlavor flavor, int size, const std::vector<std::string>& argv);

// A copy of this process that runs one function and ends. The copy sends the result of the function through a pipe.
// Tests use a ForkedChild for a process that must die.
//
// A ForkedChild must be created while the test has a single thread. The destructor kills the process if it still runs.
class ForkedChild {
 public:
  // `body` calls this function to end the parent's WaitUntilReady().
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
