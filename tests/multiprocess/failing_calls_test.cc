// Each of the first calls of a function fails once, in the launcher or in a rank: the job works all the same, or ends
// soon with an error, and leaves nothing behind.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr int kMostCalls = 12;

struct Failure {
  const char* function;
  int error_number;
};

class FailingCallsTest : public ::testing::TestWithParam<Failure> {
 protected:
  // The call number `which` of a process fails: of a rank, or of the launcher ("-"). False if there is no such call.
  bool Run(const std::string& process, int which) {
    const auto& [function, error_number] = GetParam();
    unlink(mark_.c_str());
    LauncherRun run(
        {"-np", "2", "./tests/multiprocess/launcher_surroundings_test", "rank"},
        {.environment = {"LD_PRELOAD=./tests/multiprocess/libfailing_calls.so", "RONDA_START_TIMEOUT=5s",
                         absl::StrCat("FAILING_CALL=", function, " ", error_number, " ", which, " ", process),
                         absl::StrCat("FAILING_CALL_MARK=", mark_)}});
    const int code = run.Finish();
    SCOPED_TRACE(absl::StrCat("call ", which, " of ", process, ": exit ", code, "\n", run.out(), run.err()));
    EXPECT_GE(code, 0);
    EXPECT_NE(code, 128 + SIGABRT);
    EXPECT_NE(code, 128 + SIGBUS);
    EXPECT_NE(code, 128 + SIGSEGV);
    if (code == 0) {
      EXPECT_THAT(run.out(), HasSubstr("[0]<stdout>: the sum is 2\n"));
      EXPECT_THAT(run.out(), HasSubstr("[1]<stdout>: the sum is 2\n"));
    } else {
      EXPECT_NE(run.err(), "");
    }
    ExpectNothingLeft(run.out());
    return access(mark_.c_str(), F_OK) == 0;
  }

 private:
  static void ExpectNothingLeft(const std::string& out) {
    const std::vector<std::string> parts = absl::StrSplit(out, "the job is ");
    if (parts.size() < 2) return;
    const std::string job = parts[1].substr(0, parts[1].find('\n'));
    for (const std::string& folder : ShmFolders()) {
      EXPECT_NE(access(absl::StrCat(folder, "/ronda-", job).c_str(), F_OK), 0) << folder;
    }
  }

  const std::string mark_ = absl::StrCat(::testing::TempDir(), "/failed-", getpid());
};

TEST_P(FailingCallsTest, TheJobWorksOrEndsWithAnErrorAndLeavesNothing) {
  int failed = 0;
  for (const std::string process : {"-", "0", "1"}) {
    for (int which = 1; which <= kMostCalls && Run(process, which); ++which) ++failed;
  }
  EXPECT_GT(failed, 0) << "no process calls this function";
}

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
          {"open", EACCES}};
}

INSTANTIATE_TEST_SUITE_P(Calls, FailingCallsTest, ::testing::ValuesIn(Failures()), [](const auto& info) {
  return absl::StrCat(info.param.function, "_", strerrorname_np(info.param.error_number));
});

}  // namespace
}  // namespace ronda
