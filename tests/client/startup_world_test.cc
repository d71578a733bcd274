// What ronda_init() takes from the environment and from its options.
#include <algorithm>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::JobResult;
using ronda::testing::RunRankProgram;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kMisspelt[] = "RONDA_FUSION_TRESHOLD";

void StartsTwice() {
  for (int round = 0; round < 2; ++round) {
    ronda::init();
    ronda::barrier();
    ronda::shutdown();
  }
}

int CountOf(const std::string& text, const std::string& word) {
  int count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + word.size())) ++count;
  return count;
}

TEST(EnvironmentTest, OneRankWarnsOnceOfAMisspeltVariable) {
  const JobResult job = RunRankProgram("starts_twice", 2, {.env = {{kMisspelt, "1"}}});
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[0].exit_code, 0) << job.ranks[0].output;
  EXPECT_EQ(CountOf(job.ranks[0].output, kMisspelt), 1) << job.ranks[0].output;
  EXPECT_THAT(job.ranks[0].output, HasSubstr("is it RONDA_FUSION_THRESHOLD?"));
  EXPECT_THAT(job.ranks[1].output, Not(HasSubstr(kMisspelt)));
}

}  // namespace

const std::vector<ronda::testing::RankProgram>& ronda::testing::StartupPrograms() {
  static const auto* const programs = new std::vector<RankProgram>{{"starts_twice", StartsTwice}};
  return *programs;
}
