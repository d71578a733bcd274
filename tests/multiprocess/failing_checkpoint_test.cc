// SPDX-License-Identifier: Apache-2.0

// Tests jobs in which one call on a checkpoint's files fails, or the process is killed or the machine loses power
// during the call. A restart must find the newest complete checkpoint, with the bits that were saved.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/failing_calls.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

class FailingCheckpointTest : public ::testing::TestWithParam<int> {
 protected:
  // The result of a job that resumes from a checkpoint, saves three checkpoints, and resumes again.
  struct Job {
    int exit_code = 0;
    std::vector<std::string> lines;  // of rank 0
    std::string errors;              // what the launcher and the ranks wrote to stderr
  };

  // Runs a job of two ranks, and makes rank 0's call number `which` on files below root_ fail. If `which` is 0, the job
  // has one rank, and no call fails.
  Job Run(int which) const {
    const std::vector<std::string> environment = {
        "LD_PRELOAD=./tests/multiprocess/libfailing_calls.so",
        absl::StrCat("FAILING_CALL=* ", GetParam(), " ", which, " 0"),
        absl::StrCat("FAILING_CALL_UNDER=", root_),
        absl::StrCat("FAILING_CALL_MARK=", mark_),
    };
    const int ranks = which == 0 ? 1 : 2;
    LauncherRun run(
        {"-np", absl::StrCat(ranks), "./tests/multiprocess/launcher_surroundings_test", "checkpoints", folder_},
        {.environment = environment});
    Job job = {.exit_code = run.Finish()};
    job.lines = LinesOf(0, run.out());
    job.errors = run.err();
    if (job.exit_code == 0) {
      EXPECT_EQ(job.lines, LinesOf(ranks - 1, run.out())) << "the ranks differ";
    }
    EXPECT_THAT(run.out(), AllOf(Not(HasSubstr("WRONG BITS")), Not(HasSubstr("PROBLEM")))) << run.err();
    return job;
  }

  // Runs a job in which call number `which` fails. Returns the name of the function, or "" if rank 0 makes fewer calls.
  std::string RunFailing(int which) const {
    for (const std::string& path : {root_, mark_, mark_ + ".lost"}) fs::remove_all(path);
    fs::create_directory(root_);
    const Job job = Run(which);
    SCOPED_TRACE(absl::StrCat("call ", which, ":\n", absl::StrJoin(job.lines, "\n")));
    std::string function;
    std::ifstream(mark_) >> function;
    EXPECT_EQ(job.exit_code, GetParam() <= kKillProcess && !function.empty() ? 128 + SIGKILL : 0) << job.errors;
    ExpectNewestIsFound(job.lines);
    return function;
  }

  // Starts another job. Expects that both jobs have always resumed from the newest complete checkpoint, and have left
  // the same files as a job without failures.
  void ExpectNewestIsFound(std::vector<std::string> lines) const {
    const Job next = Run(0);
    EXPECT_EQ(next.exit_code, 0) << next.errors;
    lines.insert(lines.end(), next.lines.begin(), next.lines.end());
    int64_t safe = -1;
    for (const absl::string_view line : lines) {
      const int64_t step = StepOf(line);
      if (absl::StartsWith(line, "saved ")) safe = step;
      if (absl::StartsWith(line, "cannot ")) ExpectNamesFileAndReason(line);
      if (!absl::StartsWith(line, "resumed ")) continue;
      // The job may resume one step after the last step that was reported as saved, because the file may have been
      // complete before the save failed or the process was killed.
      EXPECT_THAT(step, AnyOf(safe, safe + 1));
      safe = step;
    }
    EXPECT_THAT(Files(), ElementsAre(FileOf(safe - 1), FileOf(safe)));
  }

  void ExpectNamesFileAndReason(absl::string_view line) const {
    EXPECT_THAT(line, AllOf(HasSubstr(root_), HasSubstr(std::strerror(GetParam()))));
  }

  // Returns the number before the first colon in the line, or at its end if it has no colon.
  static int64_t StepOf(absl::string_view line) {
    const std::vector<absl::string_view> words = absl::StrSplit(line.substr(0, line.find(':')), ' ');
    int64_t step = -1;
    return absl::SimpleAtoi(words.back(), &step) ? step : -1;
  }

  static std::vector<std::string> LinesOf(int rank, const std::string& out) {
    std::vector<std::string> lines;
    for (const std::string& line : Lines(out)) {
      absl::string_view rest = line;
      if (absl::ConsumePrefix(&rest, absl::StrCat("[", rank, "]<stdout>: "))) lines.emplace_back(rest);
    }
    return lines;
  }

  static std::string FileOf(int64_t step) { return absl::StrFormat("checkpoint-%012d.ronda", step); }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.push_back(entry.path().filename());
    std::sort(files.begin(), files.end());
    return files;
  }

  const std::string root_ = fs::path(::testing::TempDir()) / absl::StrCat("root-", getpid());
  const std::string folder_ = root_ + "/run/checkpoints";
  const std::string mark_ = fs::path(::testing::TempDir()) / absl::StrCat("failed-", getpid());
};

TEST_P(FailingCheckpointTest, TheNewestWholeCheckpointIsFound) {
  std::set<std::string> failed;
  for (int which = 1;; ++which) {
    const std::string function = RunFailing(which);
    if (HasFailure()) return;
    if (function.empty()) break;
    failed.insert(function);
  }
  for (const char* const function : {"mkdir", "open", "fwrite", "fflush", "fsync", "close", "rename", "readdir",
                                     "remove", "fstat", "fread", "fseek"}) {
    EXPECT_THAT(failed, Contains(function));
  }
}

std::string NameOfError(const ::testing::TestParamInfo<int>& info) {
  if (info.param == kLosePower) return "power_loss";
  return info.param == kKillProcess ? "SIGKILL" : strerrorname_np(info.param);
}

INSTANTIATE_TEST_SUITE_P(Errors, FailingCheckpointTest,
                         ::testing::Values(ENOSPC, EDQUOT, EROFS, EIO, EMFILE, ENOMEM, EAGAIN, kKillProcess,
                                           kLosePower),
                         NameOfError);

}  // namespace
}  // namespace ronda
