// Jobs of N ranks inside one test: every rank is a process, as it is for users, started without a launcher.
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
  absl::Duration timeout = absl::Seconds(120);           // what still runs then is killed
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

// Of a process that tests start: this process's variables without those of an outer job, and then `added`.
std::vector<std::string> EnvironmentOfRanks(const std::vector<std::pair<std::string, std::string>>& added);

// The same strings for posix_spawn; they outlive it.
std::vector<char*> Pointers(std::vector<std::string>& strings);

// With which this binary runs the rank program `name`.
std::vector<std::string> ArgumentsOfRankProgram(const std::string& name);

// Runs argv once a rank, with RONDA_RANK, RONDA_SIZE and a RONDA_JOB_ID of its own, and waits for all of them.
JobResult RunProcesses(const ProcessJob& job);

// The work of a rank in a test. A gtest expectation that fails in it fails the rank.
struct RankProgram {
  std::string name;
  std::function<void()> body;
};

// The main() of a test whose ranks are further processes of the same binary: runs the tests or, if it was started by
// RunRankProgram, one of `programs`.
int RankProgramMain(int argc, char** argv, const std::vector<RankProgram>& programs);

// Runs the program of this name on `size` ranks. `job.argv` and `job.size` are not looked at.
JobResult RunRankProgram(const std::string& name, int size, ProcessJob job = {});

// The same, expecting that every rank ends well.
void ExpectRankProgramSucceeds(const std::string& name, int size, ProcessJob job = {});

// A port of the loopback interface that no process listens on.
std::string FreePort();

// Jobs of N ranks inside one test: every rank is a process that an MPI's own launcher starts.

// Debian's name for this MPI's launcher, which does not depend on what the administrator prefers.
std::string PathOfMpirun(MpiFlavor flavor);

// Whether it is installed.
bool HasMpirun(MpiFlavor flavor);

// Runs argv on `size` ranks; what they write is interleaved in the output.
// REQUIRES: HasMpirun(flavor).
ProcessResult RunUnderMpirun(MpiFlavor flavor, int size, const std::vector<std::string>& argv);

// A copy of this process that runs one function and ends; what the function returns comes back through a pipe. For
// tests of what happens when a process dies.
//
// To be made while the test has a single thread. The destructor kills what still runs.
class ForkedChild {
 public:
  // Lets the function tell its parent that it has come so far (see WaitUntilReady).
  using SayReady = std::function<void()>;

  explicit ForkedChild(const std::function<std::string(const SayReady& say_ready)>& body);
  ~ForkedChild();
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;

  pid_t pid() const { return pid_; }

  // Returns once the child has called say_ready, or has ended.
  void WaitUntilReady();

  void Kill(int signal) const { kill(pid_, signal); }

  // The result of `body`; empty if the child was killed.
  std::string Result();

 private:
  pid_t pid_ = -1;
  int ready_pipe_ = -1;
  int result_pipe_ = -1;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_PROCESS_WORLD_H_
