// SPDX-License-Identifier: Apache-2.0

// Tests jobs of real processes in which a rank is stopped, runs out of memory, or throws in a callback, and jobs that
// lose a rank while they run a locked schedule. (tests/client/failure_world_test.cc tests other jobs that lose a rank.)
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/testing/process_world.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobResult;
using testing::ProcessResult;
using testing::RunRankProgram;

constexpr char kFailureLine[] = "FIRST FAILURE: ";
constexpr milliseconds kNever{1000 * 1000};
// A deadline that a step exceeds only after a failure, even if a rank must wait for a core on a busy machine.
constexpr milliseconds kDeadline{2000};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizer = true;  // they reserve more address space than any limit
#else
constexpr bool kSanitizer = false;
#endif

// -- Programs of ranks --

void InitWithLimits(milliseconds warning, milliseconds deadline) {
  Options options;
  options.stall_warning = warning;
  options.stall_deadline = deadline;
  options.fusion_threshold = 0;
  init(options);
}

std::vector<int32_t> PidsOfAllRanks() {
  const int32_t pid = getpid();
  return allgather("pids", &pid, {1});
}

// Returns this rank's output so far, from the file that it goes to.
std::string OwnOutput() { return ReadFile(std::filesystem::read_symlink("/proc/self/fd/2")).value_or(""); }

void AwaitOwnOutput(const std::string& text) {
  while (!absl::StrContains(OwnOutput(), text)) std::this_thread::sleep_for(milliseconds(5));
}

bool IsStopped(const std::filesystem::path& thread) {
  return absl::StrContains(ReadFile(thread / "stat").value_or(""), ") T ");
}

// Stops the process, and waits until all of its threads have stopped. kill() does not wait, and on a busy machine the
// threads continue until the one that handles the signal is scheduled.
void StopAndAwait(pid_t pid) {
  kill(pid, SIGSTOP);
  const std::string threads = "/proc/" + std::to_string(pid) + "/task";
  const auto all_stopped = [&] {
    const std::filesystem::directory_iterator all(threads);
    return std::all_of(begin(all), end(all), [](const auto& thread) { return IsStopped(thread.path()); });
  };
  while (!all_stopped()) std::this_thread::sleep_for(milliseconds(1));
}

// An allreduce of two ranks during which rank `victim` is stopped. The victim submits its tensor. Once the coordinator
// knows of it, the other rank stops the victim, and then submits its own tensor.
class StoppedAllreduce {
 public:
  explicit StoppedAllreduce(int victim) : is_victim_(rank() == victim) {
    const std::vector<int32_t> pids = PidsOfAllRanks();
    victim_pid_ = pids[static_cast<size_t>(victim)];
    if (is_victim_) Submit();
    barrier();
    if (is_victim_) return;
    StopAndAwait(victim_pid_);
    Submit();
  }

  void Continue() const {
    if (!is_victim_) kill(victim_pid_, SIGCONT);
  }

  bool is_victim() const { return is_victim_; }
  Status Wait() const { return handle_.wait(); }
  float last_value() const { return values_.back(); }

 private:
  void Submit() { handle_ = allreduce_async(tensor("gradient", values_), {Op::Sum}); }

  const bool is_victim_;
  pid_t victim_pid_ = -1;
  std::vector<float> values_ = std::vector<float>(size_t{1} << 20, 1);
  Handle handle_;
};

// Expects that the operation in flight has failed with "tensor 'x': <the job's failure>", and that later calls return
// the job's failure itself.
void ReportAndShutDown(const Status& of_operation) {
  EXPECT_FALSE(of_operation.ok());
  const Status failure = try_barrier();
  EXPECT_EQ(failure.code(), of_operation.code());
  EXPECT_THAT(of_operation.message(), EndsWith(failure.message()));
  EXPECT_EQ(try_shutdown().message(), failure.message());
  std::printf("%s%s\n", kFailureLine, failure.message().c_str());
}

// Rank 1 is stopped before it submits its tensor. It continues when rank 0 has warned that rank 1 is late.
void IsStoppedBeforeSubmitting() {
  InitWithLimits(milliseconds(200), kNever);
  const std::vector<int32_t> pids = PidsOfAllRanks();
  if (rank() == 1) raise(SIGSTOP);
  std::thread continuing;
  if (rank() == 0) {
    continuing = std::thread([&] {
      AwaitOwnOutput("missing: rank 1");
      kill(pids[1], SIGCONT);
    });
  }
  float value = 1;
  EXPECT_EQ(try_allreduce(tensor("loss", &value), {Op::Sum}).message(), "");
  EXPECT_EQ(value, 3);
  if (continuing.joinable()) continuing.join();
  shutdown();
}

// Rank 1 is stopped in a collective. It continues when rank 0 has warned that rank 1 is late.
void IsStoppedInAllreduce() {
  InitWithLimits(milliseconds(200), kNever);
  const StoppedAllreduce allreduce(1);
  if (!allreduce.is_victim()) AwaitOwnOutput("did last");
  allreduce.Continue();
  EXPECT_EQ(allreduce.Wait().message(), "");
  EXPECT_EQ(allreduce.last_value(), 2);
  shutdown();
}

// Rank `victim` is stopped in a collective. It continues when the other rank has given up.
void IsStoppedForTooLong(int victim) {
  InitWithLimits(milliseconds(200), kDeadline);
  const StoppedAllreduce allreduce(victim);
  const Status failure = allreduce.Wait();
  allreduce.Continue();
  EXPECT_EQ(failure.code(), RONDA_ERROR_DEADLINE) << failure.message();
  ReportAndShutDown(failure);
}
void WorkerIsStoppedForTooLong() { IsStoppedForTooLong(1); }
void CoordinatorIsStoppedForTooLong() { IsStoppedForTooLong(0); }

void CallbackThrows() {
  init();
  float value = 1;
  const Handle handle = allreduce_async(tensor("x", &value), {Op::Sum});
  if (rank() == 1) {
    handle.on_completion([](const Status&) { throw std::runtime_error("the log is full"); });
  }
  Status status = handle.wait();
  while (status.ok()) status = try_barrier();
  ReportAndShutDown(status);
}

// Ronda refuses a shutdown in a callback, because the shutdown would wait for that callback.
void ShutsDownInACallback() {
  init();
  float value = 1;
  const Handle handle = allreduce_async(tensor("x", &value), {Op::Sum});
  std::promise<Status> refused;
  handle.on_completion([&](const Status&) { refused.set_value(try_shutdown()); });
  EXPECT_THAT(refused.get_future().get().message(), HasSubstr("ronda_shutdown() in a callback"));
  EXPECT_EQ(try_barrier().message(), "") << "the job goes on";
  shutdown();
}

void EndsWithoutShutdown() {
  init();
  barrier();
  if (rank() == 1) return;
  Status status;
  while (status.ok()) status = try_barrier();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  ReportAndShutDown(status);
}

// Rank 1 aborts the job while the other ranks wait. After that, all ranks join another job.
void AbortsTheJob() {
  EXPECT_EQ(try_abort_job("too early").code(), RONDA_ERROR_NOT_INITIALIZED);
  init();
  EXPECT_TRUE(job_status().ok());
  Status status = try_barrier();  // other ranks may still be in it when rank 1 has left it
  if (rank() == 1) abort_job("the loss is not a number");
  while (status.ok()) status = try_barrier();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  abort_job("the first failure is kept");
  const Status failure = job_status();
  EXPECT_EQ(failure.code(), RONDA_ERROR_PEER_FAILED);
  EXPECT_EQ(try_shutdown().message(), failure.message());
  std::printf("%s%s\n", kFailureLine, failure.message().c_str());

  Options options;
  options.epoch = 1;
  init(options);
  barrier();
  shutdown();
}

void CannotAllocateSharedMemory() {
  const Status status = try_init();
  EXPECT_EQ(status.code(), RONDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(is_initialized());
  std::printf("%s%s\n", kFailureLine, status.message().c_str());
}

// Limits the address space of this process.
void SetMemoryLimit(rlim_t bytes) {
  rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = bytes;
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

rlim_t MemoryInUse() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(getpagesize());
}

// Rank 1 submits tensors until it has no memory left for another submission.
void RunsOutOfMemory() {
  init();
  ronda_status code = RONDA_OK;
  if (rank() == 1) {
    SetMemoryLimit(MemoryInUse());
    float value = 1;
    // Uses the C API, because the C++ API copies names, and could run out of memory there.
    for (int i = 0; code == RONDA_OK && i < 2000000; ++i) {
      char name[64];
      std::snprintf(name, sizeof(name), "one of very many tensors, number %d", i);
      ronda_allreduce_args args = RONDA_ALLREDUCE_ARGS_INIT;
      args.tensor.name = name;
      args.input = &value;
      args.output = &value;
      ronda_handle handle = 0;
      code = ronda_allreduce_async(&args, &handle);
    }
    SetMemoryLimit(RLIM_INFINITY);
    const std::string text = ronda_last_error();
    EXPECT_EQ(code, RONDA_ERROR_OUT_OF_MEMORY) << text;
    EXPECT_THAT(text, HasSubstr("memory"));
  }
  // The shutdown fails only if the progress engine ran out of memory, too, and the job has thus failed on all ranks.
  const Status end = try_shutdown();
  EXPECT_TRUE(end.ok() || end.code() == RONDA_ERROR_OUT_OF_MEMORY) << end.message();
}

// -- Programs of ranks that run a locked schedule --

Status Step() {
  float value = static_cast<float>(rank() + 1);
  const Status status = try_allreduce(tensor("gradient", &value), {Op::Sum});
  EXPECT_TRUE(!status.ok() || value == static_cast<float>(size() * (size() + 1) / 2)) << value;
  return status;
}

// Starts the job, and makes steps until they are no longer negotiated. Returns the pids of all ranks.
std::vector<int32_t> InitAndLock(milliseconds warning, milliseconds deadline) {
  Options options;
  options.stall_warning = warning;
  options.stall_deadline = deadline;
  init(options);
  std::vector<int32_t> pids = PidsOfAllRanks();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Step().message(), "");
  EXPECT_GT(statistics().schedule_rounds, 0U);
  return pids;
}

void DiesInALockedSchedule() {
  InitAndLock(kNever, kNever);
  if (rank() == 1) raise(SIGKILL);
  const Status status = Step();
  EXPECT_EQ(status.code(), RONDA_ERROR_PEER_FAILED);
  std::printf("%s\n", status.message().c_str());
  EXPECT_EQ(try_shutdown().code(), RONDA_ERROR_PEER_FAILED);
}

// Rank 1 is stopped, and continues when rank 0 has warned that rank 1 is late.
void IsStoppedInALockedSchedule() {
  const std::vector<int32_t> pids = InitAndLock(milliseconds(200), kNever);
  if (rank() == 1) raise(SIGSTOP);
  std::thread continuing;
  if (rank() == 0) {
    continuing = std::thread([&] {
      AwaitOwnOutput("did last");
      kill(pids[1], SIGCONT);
    });
  }
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Step().message(), "");
  if (continuing.joinable()) continuing.join();
  shutdown();
}

// Rank 1 is stopped, and continues when rank 0 has given up.
void IsStoppedForTooLongInALockedSchedule() {
  const std::vector<int32_t> pids = InitAndLock(milliseconds(200), kDeadline);
  if (rank() == 1) raise(SIGSTOP);
  const Status status = Step();
  if (rank() == 0) kill(pids[1], SIGCONT);
  EXPECT_EQ(status.code(), RONDA_ERROR_DEADLINE);
  std::printf("%s\n", status.message().c_str());
  EXPECT_FALSE(try_shutdown().ok());
}

// -- The tests --

void ExpectAllEndWell(const JobResult& result) {
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    EXPECT_EQ(result.ranks[rank].exit_code, 0)
        << "rank " << rank << ", signal " << result.ranks[rank].signal << ", said:\n"
        << result.ranks[rank].output;
  }
  EXPECT_THAT(result.left_in_shared_memory, IsEmpty());
}

// Returns the failure that all ranks report. If the reports differ, the test fails.
std::string FirstFailure(const JobResult& result) {
  std::set<std::string> failures;
  for (const ProcessResult& process : result.ranks) {
    for (const std::string& line : std::vector<std::string>(absl::StrSplit(process.output, '\n'))) {
      if (absl::StartsWith(line, kFailureLine)) failures.insert(line.substr(sizeof(kFailureLine) - 1));
    }
  }
  EXPECT_EQ(failures.size(), 1) << ::testing::PrintToString(failures);
  return failures.empty() ? "" : *failures.begin();
}

TEST(FailureSemanticsTest, ARankStoppedBeforeItSubmitsIsWarnedOfAndTheJobGoesOn) {
  const JobResult result = RunRankProgram("IsStoppedBeforeSubmitting", 3);
  ExpectAllEndWell(result);
  EXPECT_THAT(result.ranks[0].output,
              AllOf(HasSubstr("tensor 'loss'"), HasSubstr("missing: rank 1 (host "), HasSubstr("did last")));
}

TEST(FailureSemanticsTest, ARankStoppedInAnAllreduceIsWarnedOfAndTheJobGoesOn) {
  const JobResult result = RunRankProgram("IsStoppedInAllreduce", 2);
  ExpectAllEndWell(result);
  EXPECT_THAT(result.ranks[0].output,
              AllOf(HasSubstr("rank 1 (host "), HasSubstr("did last"), HasSubstr("'gradient'")));
}

TEST(FailureSemanticsTest, AWorkerStoppedForTooLongFailsTheJobWithAReport) {
  const JobResult result = RunRankProgram("WorkerIsStoppedForTooLong", 2);
  ExpectAllEndWell(result);
  EXPECT_THAT(FirstFailure(result), AllOf(HasSubstr("rank 1 (host "), HasSubstr("'gradient'"), HasSubstr("did last")));
}

TEST(FailureSemanticsTest, ACoordinatorStoppedForTooLongFailsTheJobWithAReport) {
  const JobResult result = RunRankProgram("CoordinatorIsStoppedForTooLong", 2);
  ExpectAllEndWell(result);
  EXPECT_THAT(FirstFailure(result), AllOf(HasSubstr("rank 0"), HasSubstr("'gradient'")));
}

TEST(FailureSemanticsTest, AnExceptionInACallbackFailsTheJobWithItsText) {
  const JobResult result = RunRankProgram("CallbackThrows", 3);
  ExpectAllEndWell(result);
  EXPECT_THAT(FirstFailure(result),
              AllOf(HasSubstr("rank 1 (host "), HasSubstr("callback of tensor 'x' threw: the log is full")));
}

TEST(FailureSemanticsTest, AShutdownInACallbackIsRefusedAndTheJobGoesOn) {
  ExpectAllEndWell(RunRankProgram("ShutsDownInACallback", 2));
}

TEST(FailureSemanticsTest, ARankThatEndsWithoutShutdownIsNamedToAllOthers) {
  const JobResult result = RunRankProgram("EndsWithoutShutdown", 3);
  ExpectAllEndWell(result);
  EXPECT_THAT(FirstFailure(result), AllOf(HasSubstr("rank 1 (host "), HasSubstr("has ended without ronda_shutdown()")));
}

TEST(FailureSemanticsTest, AJobIsAbortedForAllWithTheReasonAndRanksMeetAgain) {
  const JobResult result = RunRankProgram("AbortsTheJob", 3);
  ExpectAllEndWell(result);
  EXPECT_THAT(FirstFailure(result),
              AllOf(HasSubstr("rank 1 (host "), HasSubstr("has aborted the job: the loss is not a number")));
}

TEST(FailureSemanticsTest, ALackOfSharedMemoryIsReportedByInitOnAllRanks) {
  testing::ForkedChild child([](const testing::ForkedChild::SayReady&) -> std::string {
    const bool has_own_mounts = unshare(CLONE_NEWNS) == 0 &&
                                mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                                mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0 &&
                                mount("tmpfs", "/tmp", "tmpfs", 0, "size=64k") == 0 && unsetenv("TMPDIR") == 0;
    if (!has_own_mounts) return "SKIP";
    testing::RefuseCall(SYS_memfd_create, EPERM);
    const JobResult result = RunRankProgram("CannotAllocateSharedMemory", 2);
    ExpectAllEndWell(result);
    return result.ranks[0].output + result.ranks[1].output +
           (::testing::Test::HasFailure() ? "a rank did not end well" : "");
  });
  const std::string report = child.Result();
  if (report == "SKIP") GTEST_SKIP() << "needs the right to mount a file system";
  const std::vector<std::string> lines = absl::StrSplit(report, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2) << report;
  for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr("/dev/shm has 65536 bytes available")) << report;
}

TEST(FailureSemanticsTest, ARankWithoutMemoryToSubmitWithIsToldSo) {
  if (kSanitizer) GTEST_SKIP() << "sanitizers cannot live with a limit of the address space";
  ExpectAllEndWell(RunRankProgram("RunsOutOfMemory", 2));
}

TEST(LockedScheduleFailureTest, DeathOfARankIsReportedByName) {
  const JobResult result = RunRankProgram("DiesInALockedSchedule", 3);
  EXPECT_EQ(result.ranks[1].signal, SIGKILL);
  for (const size_t survivor : {0, 2}) {
    EXPECT_EQ(result.ranks[survivor].exit_code, 0) << result.ranks[survivor].output;
    EXPECT_THAT(result.ranks[survivor].output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("died")));
  }
  EXPECT_THAT(result.left_in_shared_memory, IsEmpty());
}

TEST(LockedScheduleFailureTest, RankThatIsStoppedForAWhileIsWarnedOfAndTheJobGoesOn) {
  const JobResult result = RunRankProgram("IsStoppedInALockedSchedule", 2);
  for (const auto& rank : result.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
  EXPECT_THAT(result.ranks[0].output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("'gradient'")));
}

TEST(LockedScheduleFailureTest, RankThatIsStoppedForTooLongFailsTheJobByName) {
  const JobResult result = RunRankProgram("IsStoppedForTooLongInALockedSchedule", 2);
  for (const auto& rank : result.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
  EXPECT_THAT(result.ranks[0].output, AllOf(HasSubstr("rank 1 (host "), HasSubstr("'gradient'")));
}

}  // namespace

std::vector<testing::RankProgram> FailurePrograms() {
  return {
      {"IsStoppedBeforeSubmitting", IsStoppedBeforeSubmitting},
      {"IsStoppedInAllreduce", IsStoppedInAllreduce},
      {"WorkerIsStoppedForTooLong", WorkerIsStoppedForTooLong},
      {"CoordinatorIsStoppedForTooLong", CoordinatorIsStoppedForTooLong},
      {"CallbackThrows", CallbackThrows},
      {"ShutsDownInACallback", ShutsDownInACallback},
      {"EndsWithoutShutdown", EndsWithoutShutdown},
      {"AbortsTheJob", AbortsTheJob},
      {"CannotAllocateSharedMemory", CannotAllocateSharedMemory},
      {"RunsOutOfMemory", RunsOutOfMemory},
      {"DiesInALockedSchedule", DiesInALockedSchedule},
      {"IsStoppedInALockedSchedule", IsStoppedInALockedSchedule},
      {"IsStoppedForTooLongInALockedSchedule", IsStoppedForTooLongInALockedSchedule},
  };
}

}  // namespace ronda
