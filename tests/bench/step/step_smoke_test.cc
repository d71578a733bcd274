// ronda-bench step as its users meet it, in its smallest form.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace ronda::bench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

struct Ended {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

Ended RunBench(const std::string& words) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/output.txt";
  const int status = std::system(("bench/ronda-bench " + words + " > '" + path + "' 2>&1").c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1, .output = ReadFile(path)};
}

TEST(StepCommand, LeNetOnTwoRanksWithSettingsInTurn) {
  const std::string json = std::string(std::getenv("TEST_TMPDIR")) + "/step.json";
  const Ended run = RunBench(
      "step -np 2 --preset lenet --compute 0,1ms --wire none,fp8_e4m3 --backend all --lock on "
      "--rounds 1 --steps 2 --warm-up 6 --json " +
      json);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("# lenet: 10 tensors, 61706 elements, 0.2 MB of fp32; 2 ranks"));
  const std::string rows = ReadFile(json);
  size_t ronda_rows = 0;
  for (size_t at = rows.find("\"contestant\":\"ronda\""); at != std::string::npos;
       at = rows.find("\"contestant\":\"ronda\"", at + 1)) {
    ++ronda_rows;
  }
  EXPECT_EQ(ronda_rows, 2u * 2 * 2);
  EXPECT_THAT(rows, Not(HasSubstr("\"wrong\":1")));
  EXPECT_THAT(rows, HasSubstr("\"wrong\":0"));
}

TEST(StepCommand, OneRankNeedsNobody) {
  const Ended run = RunBench("step -np 1 --preset lenet --rounds 1 --steps 1 --warm-up 0");
  EXPECT_EQ(run.exit_code, 0) << run.output;
}

TEST(StepCommand, SeveralNumbersOfRanksAreOneRun) {
  const std::string csv = std::string(std::getenv("TEST_TMPDIR")) + "/ranks.csv";
  const Ended run = RunBench("step -np 1,2 --preset lenet --rounds 1 --steps 1 --warm-up 0 --csv " + csv);
  ASSERT_EQ(run.exit_code, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("0.2 MB of fp32; 1 ranks"), HasSubstr("0.2 MB of fp32; 2 ranks")));
  EXPECT_THAT(ReadFile(csv), AllOf(HasSubstr("lenet,10,61706,246824,1,"), HasSubstr("lenet,10,61706,246824,2,")));
}

TEST(StepCommand, AFileThatIsNoListOfShapesIsAUsageError) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/broken.txt";
  std::ofstream(path) << "weight 3\nbias many\n";
  const Ended run = RunBench("step --shapes " + path);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.output, HasSubstr(path + ":2: a dimension is a number of 1 or more, not \"many\""));
}

}  // namespace
}  // namespace ronda::bench
