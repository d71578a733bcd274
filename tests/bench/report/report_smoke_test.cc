// ronda-bench report as its users meet it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "bench/report/pages.h"
#include "tests/bench/report/sample_runs.h"

namespace ronda::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

class ReportCommandTest : public ::testing::Test {
 protected:
  ReportCommandTest() : folder_(std::filesystem::path(std::getenv("TEST_TMPDIR")) / "report") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  // The exit code of ronda-bench report with these words; what it prints goes to output.txt.
  int Report(const std::string& words, const std::string& environment = "") {
    const std::string output = (folder_ / "output.txt").string();
    const int status =
        std::system((environment + " bench/ronda-bench report " + words + " > '" + output + "' 2>&1").c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string output() const { return ReadFile(folder_ / "output.txt"); }

  const std::filesystem::path folder_;
};

TEST_F(ReportCommandTest, WritesThePageAndTheTables) {
  std::ofstream(folder_ / "step.json") << SampleStep();
  std::ofstream(folder_ / "sweep.json") << SampleSweep();
  std::ofstream(folder_ / "results.md") << kResultsBegin << "\n" << kResultsEnd << "\n";
  ASSERT_EQ(Report(folder_.string() + " --markdown " + (folder_ / "results.md").string()), 0) << output();
  EXPECT_THAT(output(), HasSubstr("index.html: 2 runs, 3 figures\n"));
  EXPECT_THAT(ReadFile(folder_ / "index.html"), AllOf(HasSubstr("<svg"), HasSubstr("openmpi flat")));
  EXPECT_THAT(ReadFile(folder_ / "results.md"), HasSubstr("| openmpi flat | 144 |"));
}

TEST_F(ReportCommandTest, WithoutGnuplotItSaysSoAndGoesOn) {
  std::ofstream(folder_ / "latency.json") << SampleLatency();
  ASSERT_EQ(Report(folder_.string(), "PATH=/nowhere"), 0) << output();
  EXPECT_THAT(output(), HasSubstr("gnuplot is not installed (Debian's gnuplot-nox)"));
  EXPECT_THAT(ReadFile(folder_ / "index.html"), HasSubstr("<svg"));
}

TEST_F(ReportCommandTest, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(Report(folder_.string()), 1);
  EXPECT_THAT(output(), HasSubstr("there is no file *.json in this folder"));
  EXPECT_EQ(Report(""), 2);
  EXPECT_THAT(output(), HasSubstr("report needs one folder"));
}

}  // namespace
}  // namespace ronda::bench
