// Jobs of N ranks inside one test: every rank is a process, as it is for users, started without a launcher.
#ifndef RONDA_TESTS_TESTING_PROCESS_WORLD_H_
#define RONDA_TESTS_TESTING_PROCESS_WORLD_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace ronda::testing {

struct ProcessJob {
  int size = 1;
  std::vector<std::string> argv;                         // argv[0] is the path of the program
  std::vector<std::pair<std::string, std::string>> env;  // added to this process' environment
  absl::Duration timeout = absl::Seconds(60);            // what still runs then is killed
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

// Runs argv once a rank, with RONDA_RANK, RONDA_SIZE and a RONDA_JOB_ID of its own, and waits for all of them.
JobResult RunProcesses(const ProcessJob& job);

// What a rank of a test does. A gtest expectation that fails in it fails the rank.
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

}  // namespace ronda::testing

#endif  // RONDA_TESTS_TESTING_PROCESS_WORLD_H_
