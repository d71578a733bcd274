// SPDX-License-Identifier: Apache-2.0

// Tests ranks that fork in the middle of training, as data loaders do. The children are not ranks. Ronda is
// uninitialised in the children, and neither their work nor their exit affects the job.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::AHostARank;
using ronda::testing::ExpectRankProgramSucceeds;
using ronda::testing::JobResult;
using ronda::testing::OverTcp;
using ronda::testing::ProcessJob;
using ::testing::HasSubstr;

constexpr int kWorkers = 8;

#ifdef __SANITIZE_ADDRESS__
// Ends a child that exits through exit(0). This destructor runs after all other destructors, but before LeakSanitizer
// looks for leaks, because LeakSanitizer was initialised earlier. The parent's other threads do not exist in the child,
// so LeakSanitizer would report memory that only the stacks of these threads refer to. (Its warning is "Running thread
// ... was not suspended. False leaks are possible.")
struct LastDestructorOfAChild {
  ~LastDestructorOfAChild() {
    if (getpid() != parent) _exit(0);
  }
  const pid_t parent = getpid();
};
__attribute__((init_priority(101))) const LastDestructorOfAChild last_destructor_of_a_child;
#endif

// Exits with the line of the first failed expectation, because the child is not a GoogleTest process.
void Require(bool holds, int line) {
  if (holds) return;
  std::fprintf(stderr, "a worker's expectation fails in line %d: %s\n", line, ronda_last_error());
  _exit(1);
}
#define REQUIRE(condition) Require(condition, __LINE__)

// Requires that Ronda is uninitialised in this process, which is a child of a rank.
void RequireUninitialized(ronda_handle in_flight) {
  REQUIRE(ronda_is_initialized() == 0);
  REQUIRE(ronda_rank() == -1);
  REQUIRE(ronda_size() == -1);
  REQUIRE(ronda_current() == 0);
  float value = 1;
  REQUIRE(ronda::try_allreduce(ronda::tensor("worker", &value)).code() == RONDA_ERROR_NOT_INITIALIZED);
  REQUIRE(ronda::try_barrier().code() == RONDA_ERROR_NOT_INITIALIZED);
  REQUIRE(ronda::try_barrier().message().find("fork()") != std::string::npos);
  REQUIRE(ronda_synchronize(in_flight) == RONDA_ERROR_NOT_INITIALIZED);
  REQUIRE(ronda::try_shutdown().code() == RONDA_ERROR_NOT_INITIALIZED);
  const ronda::Status again = ronda::try_init();
  REQUIRE(again.code() == RONDA_ERROR_INVALID_ARGUMENT);
  REQUIRE(again.message().find("fork()") != std::string::npos);
}

// The ends of a pipe.
struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe MakePipe() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {ends[0], ends[1]};
}

// Runs a worker process until the write end of the pipe is closed. The worker then exits through exit(), which runs all
// destructors.
[[noreturn]] void WorkUntilTold(Pipe stop, ronda_handle in_flight) {
  close(stop.write);
  RequireUninitialized(in_flight);
  char byte = 0;
  REQUIRE(read(stop.read, &byte, 1) == 0);
  RequireUninitialized(in_flight);
  std::exit(0);
}

// Executes a program that checks its file descriptors. The program fails if it has inherited any descriptor other than
// the three standard ones.
[[noreturn]] void ExecuteAnother() {
  execl("/bin/sh", "sh", "-c", "set -- /proc/self/fd/*; for fd; do [ ${fd##*/} -le 2 ] || [ ! -e $fd ] || exit 7; done",
        nullptr);
  _exit(8);
}

// Workers with even numbers live as long as the training. Workers with odd numbers execute another program, which exits
// immediately.
std::vector<pid_t> StartWorkers(Pipe stop, ronda_handle in_flight) {
  std::vector<pid_t> workers;
  for (int i = 0; i < kWorkers; ++i) {
    std::fflush(nullptr);
    const pid_t worker = fork();
    if (worker == 0) {
      if (i % 2 == 0) WorkUntilTold(stop, in_flight);
      ExecuteAnother();
    }
    EXPECT_GT(worker, 0);
    workers.push_back(worker);
  }
  return workers;
}

void ExpectAllEndWell(const std::vector<pid_t>& workers) {
  for (const pid_t worker : workers) {
    int status = 0;
    ASSERT_EQ(waitpid(worker, &status, 0), worker);
    EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

void Step(const std::string& name, std::vector<float>* values) {
  values->assign(values->size(), 1);
  ronda::allreduce(ronda::tensor(name, *values), {ronda::Op::Sum});
  ASSERT_EQ(values->front(), static_cast<float>(ronda::size()));
  ASSERT_EQ(values->back(), static_cast<float>(ronda::size()));
}

// One thread trains continuously, so that the runtime's locks may be held when another thread forks.
void TrainsWhileItForks() {
  ronda::init();
  constexpr int kTrainingSteps = 400;
  std::thread training([] {
    std::vector<float> values(5000);
    for (int step = 0; step < kTrainingSteps; ++step) Step("w", &values);
  });
  std::vector<float> in_flight(100, 1), more(100);
  for (int round = 0; round < 3; ++round) {
    const Pipe stop = MakePipe();
    ronda::Handle handle = ronda::allreduce_async(ronda::tensor("in_flight", in_flight));
    const std::vector<pid_t> workers = StartWorkers(stop, handle.id());
    EXPECT_TRUE(handle.wait().ok());
    for (int step = 0; step < 10; ++step) Step("beside", &more);
    close(stop.write);
    ExpectAllEndWell(workers);
    close(stop.read);
  }
  training.join();
  Step("last", &more);
  ronda::shutdown();
}

// If a rank handles SIGTERM with should_stop(), the signal still ends the rank's workers.
void TerminatesAWorker() {
  ronda::init();
  EXPECT_FALSE(ronda::should_stop());
  const Pipe stop = MakePipe();
  const pid_t worker = fork();
  if (worker == 0) {
    close(stop.write);
    char byte = 0;
    REQUIRE(read(stop.read, &byte, 1) == 0);
    _exit(9);
  }
  EXPECT_EQ(kill(worker, SIGTERM), 0);
  int status = 0;
  EXPECT_EQ(waitpid(worker, &status, 0), worker);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  for (int step = 0; step < 3; ++step) EXPECT_FALSE(ronda::should_stop());
  ronda::shutdown();
}

// Reads one byte from each of the two survivors. The worker opens `fifo` for writing too, so read() never reports end
// of file.
[[noreturn]] void WorkUntilTwoSurvivorsKnow(const std::string& fifo) {
  alarm(60);  // in case the test fails
  const int fd = open(fifo.c_str(), O_RDWR);
  char bytes[2];
  for (char& byte : bytes) REQUIRE(read(fd, &byte, 1) == 1);
  _exit(0);
}

// The rank dies, but its worker, which holds copies of all its file descriptors, does not.
void DiesBeforeItsWorker() {
  const std::string fifo = std::getenv("TEST_FIFO");
  ronda::testing::MoveToAHostOfItsOwnIfAsked();
  ronda::init();
  ronda::barrier();
  if (ronda::rank() == 1) {
    if (fork() == 0) WorkUntilTwoSurvivorsKnow(fifo);
    raise(SIGKILL);
  }
  ronda::Status status;
  while (status.ok()) status = ronda::try_barrier();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  EXPECT_FALSE(ronda::try_shutdown().ok());
  const int fd = open(fifo.c_str(), O_WRONLY);
  EXPECT_EQ(write(fd, "", 1), 1);
}

TEST(ForkTest, WorkersOfARankInSharedMemory) { ExpectRankProgramSucceeds("trains_while_it_forks", 2); }

TEST(ForkTest, WorkersOfARankWithGrpc) { ExpectRankProgramSucceeds("trains_while_it_forks", 2, OverTcp()); }

TEST(ForkTest, WorkersOfARankWhoseGrpcHasForkHandlers) {
  ExpectRankProgramSucceeds("trains_while_it_forks", 2, OverTcp({{"GRPC_ENABLE_FORK_SUPPORT", "1"}}));
}

TEST(ForkTest, ASignalEndsAWorker) { ExpectRankProgramSucceeds("terminates_a_worker", 2); }

void ExpectTheOthersLearnOfTheDeath(ProcessJob job) {
  const std::string fifo = ::testing::TempDir() + "/fork_fifo_" + std::to_string(getpid());
  unlink(fifo.c_str());
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  job.env.emplace_back("TEST_FIFO", fifo);
  job.env.emplace_back("RONDA_HEARTBEAT_TIMEOUT", "inf");
  const JobResult result = ronda::testing::RunRankProgram("dies_before_its_worker", 3, job);
  ASSERT_EQ(result.ranks.size(), 3u);
  EXPECT_EQ(result.ranks[0].exit_code, 0) << result.ranks[0].output;
  EXPECT_EQ(result.ranks[1].signal, SIGKILL);
  EXPECT_EQ(result.ranks[2].exit_code, 0) << result.ranks[2].output;
  unlink(fifo.c_str());
}

TEST(ForkTest, AWorkerThatLivesOnHidesNoDeathInSharedMemory) { ExpectTheOthersLearnOfTheDeath({}); }
TEST(ForkTest, AWorkerThatLivesOnHidesNoDeathFromOtherHosts) { ExpectTheOthersLearnOfTheDeath(AHostARank()); }

}  // namespace

const std::vector<ronda::testing::RankProgram>& ronda::testing::ForkPrograms() {
  static const auto* const programs = new std::vector<RankProgram>{{"trains_while_it_forks", TrainsWhileItForks},
                                                                   {"terminates_a_worker", TerminatesAWorker},
                                                                   {"dies_before_its_worker", DiesBeforeItsWorker}};
  return *programs;
}
