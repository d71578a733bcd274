// SPDX-License-Identifier: Apache-2.0

// Tests jobs in which one function call fails, in the launcher or in a rank, or a rank is killed during the call. The
// job must still work, or soon end with an error. In both cases it must leave no process and no file behind.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/config.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/failing_calls.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

struct Failure {
  const char* function;
  int error_number;
  const char* process = "0";  // for tests in which calls of only one process fail
};

class FailingCallsTest : public ::testing::TestWithParam<Failure> {
 protected:
  // A job, and the lines that it prints if nothing fails.
  struct JobToRun {
    std::vector<std::string> arguments;  // of rondarun
    std::vector<std::string> lines;
  };

  // Runs the job, and makes call number `which` in `process` fail. The process is a rank, or the launcher ("-").
  // Returns false if the process makes fewer calls.
  bool Run(const JobToRun& job, const std::string& process, int which) {
    const Failure& failure = GetParam();
    unlink(mark_.c_str());
    LauncherRun run(job.arguments,
                    {.environment = {"LD_PRELOAD=./tests/multiprocess/libfailing_calls.so", "RONDA_START_TIMEOUT=5s",
                                     absl::StrCat("FAILING_CALL=", failure.function, " ", failure.error_number, " ",
                                                  which, " ", process),
                                     absl::StrCat("FAILING_CALL_MARK=", mark_)}});
    const int code = run.Finish();
    SCOPED_TRACE(absl::StrCat("call ", which, " of ", process, ": exit ", code, "\n", run.out(), run.err()));
    EXPECT_GE(code, 0);
    EXPECT_NE(code, 128 + SIGABRT);
    EXPECT_NE(code, 128 + SIGBUS);
    EXPECT_NE(code, 128 + SIGSEGV);
    if (code == 0) {
      for (const std::string& line : job.lines) EXPECT_THAT(run.out(), HasSubstr(line));
    } else {
      EXPECT_NE(run.err(), "");
    }
    ExpectNothingLeft(run.out());
    const bool has_failed = access(mark_.c_str(), F_OK) == 0;
    if (has_failed && failure.error_number == kKillProcess) {
      EXPECT_EQ(code, 128 + SIGKILL);
    }
    return has_failed;
  }

  // For each of the first `most` calls of each of `processes`, runs a job in which this call fails.
  void RunEach(const JobToRun& job, const std::vector<std::string>& processes, int most) {
    int failed = 0;
    for (const std::string& process : processes) {
      for (int which = 1; which <= most && Run(job, process, which); ++which) ++failed;
    }
    EXPECT_GT(failed, 0) << "no process calls this function";
  }

  // The job of these tests: two ranks start, make 200 steps, and exit.
  const JobToRun steps_ = {.arguments = {"-np", "2", "./tests/multiprocess/launcher_surroundings_test", "rank"},
                           .lines = {"[0]<stdout>: the sum is 2\n", "[1]<stdout>: the sum is 2\n"}};

 private:
  static void ExpectNothingLeft(const std::string& out) {
    const std::vector<std::string> parts = absl::StrSplit(out, "the job is ");
    if (parts.size() < 2) return;
    const std::string job = parts[1].substr(0, parts[1].find('\n'));
    for (const std::string& folder : ShmFolders()) {
      for (int64_t epoch = 0; epoch < 5; ++epoch) {
        struct stat info;
        EXPECT_NE(lstat(absl::StrCat(folder, "/ronda-", NameInEpoch(job, epoch)).c_str(), &info), 0) << folder;
      }
    }
  }

  const std::string mark_ = absl::StrCat(::testing::TempDir(), "/failed-", getpid());
};

TEST_P(FailingCallsTest, TheJobWorksOrEndsWithAnErrorAndLeavesNothing) { RunEach(steps_, {"-", "0", "1"}, 12); }

// The functions that rondarun and a rank use, according to `nm -D --undefined-only`, except:
// - functions that this job does not call. FailingCheckpointTest and FailingElasticCallsTest test some of them. Only
//   jobs on several hosts call the rest, and there gRPC and Abseil abort a process that runs out of memory or
//   descriptors;
// - functions that some systems always refuse, which RefusedCallsTest tests;
// - functions that fail only because of a bug in the caller, such as kill, waitid and sigaction.
std::vector<Failure> Failures() {
  return {{"mmap", ENOMEM},         {"posix_fallocate", ENOSPC},
          {"posix_fallocate", EIO}, {"write", ENOSPC},
          {"write", EIO},           {"read", EIO},
          {"socket", EMFILE},       {"bind", EADDRINUSE},
          {"listen", EADDRINUSE},   {"pipe2", EMFILE},
          {"poll", ENOMEM},         {"memfd_create", ENOMEM},
          {"fork", EAGAIN},         {"fstat", EIO},
          {"close", EDQUOT},        {"pthread_create", EAGAIN},
          {"open", EMFILE},         {"open", EROFS},
          {"open", EACCES},         {"stat", EIO},
          {"access", EIO},          {"readlink", ENOMEM},
          {"unlink", EROFS},        {"readdir", EIO},
          {"fread", EIO},           {"fwrite", ENOSPC},
          {"fflush", ENOSPC},       {"munmap", ENOMEM},
          {"symlink", EROFS},       {"dup2", EMFILE},
          {"getsockname", ENOBUFS}, {"signalfd", EMFILE}};
}

std::string NameOfFailure(const ::testing::TestParamInfo<Failure>& info) {
  if (info.param.error_number == kKillProcess) return absl::StrCat("rank_", info.param.process);
  return absl::StrCat(info.param.function, "_", strerrorname_np(info.param.error_number));
}

INSTANTIATE_TEST_SUITE_P(Calls, FailingCallsTest, ::testing::ValuesIn(Failures()), NameOfFailure);

class KilledRankTest : public FailingCallsTest {};

TEST_P(KilledRankTest, TheJobEndsWithAnErrorAndLeavesNothing) {
  constexpr int kAll = 1000;
  RunEach(steps_, {GetParam().process}, kAll);
}

INSTANTIATE_TEST_SUITE_P(EachCall, KilledRankTest,
                         ::testing::Values(Failure{"*", kKillProcess, "0"}, Failure{"*", kKillProcess, "1"}),
                         NameOfFailure);

// In epoch 0 a member dies while the members connect, and the job ends in epoch 1. Member 0 takes part in both epochs,
// and makes so few calls, including those of its shell, that the tests can make each of them fail once.
class FailingElasticCallsTest : public FailingCallsTest {};

TEST_P(FailingElasticCallsTest, TheJobGoesOnOrEndsWithAnErrorAndLeavesNothing) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/elastic-", getpid());
  mkdir(folder.c_str(), 0700);
  std::ofstream(folder + "/finish").close();
  const std::string member =
      absl::StrCat("echo the job is $RONDA_JOB_ID; exec ./tests/multiprocess/elastic_member ", folder, " vanish=0");
  RunEach({.arguments = {"-np", "2", "--min-np", "2", "sh", "-c", member}, .lines = {"finished"}}, {GetParam().process},
          24);
}

INSTANTIATE_TEST_SUITE_P(Calls, FailingElasticCallsTest,
                         ::testing::ValuesIn(std::vector<Failure>{{"mmap", ENOMEM},
                                                                  {"posix_fallocate", ENOSPC},
                                                                  {"open", EMFILE},
                                                                  {"pthread_create", EAGAIN},
                                                                  {"socketpair", EMFILE, "-"},
                                                                  {"send", ENOMEM},
                                                                  {"recv", ENOMEM}}),
                         NameOfFailure);

}  // namespace
}  // namespace ronda
