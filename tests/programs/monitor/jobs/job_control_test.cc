// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/jobs/job_control.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronda {
namespace {

using ::testing::HasSubstr;

// The id of the last job, 100c, begins with the launcher pid of the first, 100.
const std::vector<KnownJob>& Jobs() {
  static const auto* const jobs =
      new std::vector<KnownJob>{{.job = "aaaa", .origin = {.name = "resnet50", .launcher = 100}, .ranks = {101, 102}},
                                {.job = "aabb", .origin = {.name = "bert", .launcher = 200}, .ranks = {201}},
                                {.job = "100c", .origin = {}, .ranks = {301}}};
  return *jobs;
}

std::string Chosen(const std::string& word) { return ChooseJob(word, Jobs()).value_or("none"); }

TEST(ChooseJobTest, TakesNamesProcessesAndBeginningsOfIds) {
  EXPECT_EQ(Chosen("resnet50"), "aaaa");
  EXPECT_EQ(Chosen("100"), "aaaa") << "a process comes before an id";
  EXPECT_EQ(Chosen("102"), "aaaa");
  EXPECT_EQ(Chosen("200"), "aabb");
  EXPECT_EQ(Chosen("aab"), "aabb");
  EXPECT_EQ(Chosen("100c"), "100c");
}

TEST(ChooseJobTest, NamesAreNotShortened) { EXPECT_EQ(Chosen("resnet"), "none"); }

TEST(ChooseJobTest, ErrorsNameTheJobs) {
  EXPECT_THAT(std::string(ChooseJob("aa", Jobs()).status().message()),
              HasSubstr("there are 2 jobs: say which one of resnet50 (aaaa), bert (aabb)"));
  EXPECT_THAT(std::string(ChooseJob("", Jobs()).status().message()), HasSubstr("there are 3 jobs"));
  EXPECT_THAT(std::string(ChooseJob("0", Jobs()).status().message()),
              HasSubstr("that has the name or pid '0' or an id that begins with it"));
  EXPECT_THAT(std::string(ChooseJob("", {}).status().message()), HasSubstr("you run no job"));
  EXPECT_EQ(ChooseJob("", {Jobs()[0]}).value_or(""), "aaaa");
}

}  // namespace
}  // namespace ronda
