// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/job_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "programs/monitor/serve/page.h"
#include "tests/programs/monitor/serve/snapshots.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using testing::MakeJob;

const absl::Time kClockZero = absl::FromUnixSeconds(1'000'000'000);

nlohmann::json Parse(const JobSnapshot& job) {
  return nlohmann::json::parse(JobsJson({job}, kClockZero)).at("jobs").at(0);
}

TEST(JobsJson, HasTheJobAndItsRanks) {
  const nlohmann::json job = Parse(MakeJob("j", 2));
  EXPECT_EQ(job.at("job"), "j");
  EXPECT_EQ(job.at("size"), 2);
  EXPECT_EQ(job.at("name"), "");
  EXPECT_EQ(job.at("time"), 1'000'001'000);
  EXPECT_TRUE(job.at("standstill").is_null());
  EXPECT_TRUE(job.at("straggler").is_null());
  EXPECT_THAT(job.at("why").get<std::string>(), HasSubstr("no rank holds the others up"));
  ASSERT_EQ(job.at("ranks").size(), 2u);
  const nlohmann::json& rank = job.at("ranks").at(1);
  EXPECT_EQ(rank.at("rank"), 1);
  EXPECT_EQ(rank.at("pid"), 101);
  EXPECT_EQ(rank.at("steps"), 2);
  EXPECT_EQ(rank.at("lateness").at("buckets"), 3);
  EXPECT_DOUBLE_EQ(rank.at("lateness").at("sum_seconds"), 31.00201);
  EXPECT_EQ(rank.at("blamed_wait_seconds"), 1);
}

TEST(JobsJson, SaysWhatPeopleCallTheJob) {
  JobSnapshot job = MakeJob("j", 1);
  job.origin = {.name = "resnet50", .command = "python3 train.py", .launcher = 4711, .started = absl::Seconds(940)};
  const nlohmann::json parsed = Parse(job);
  EXPECT_EQ(parsed.at("name"), "resnet50");
  EXPECT_EQ(parsed.at("command"), "python3 train.py");
  EXPECT_EQ(parsed.at("launcher_pid"), 4711);
  EXPECT_EQ(parsed.at("age_seconds"), 60);
}

TEST(JobsJson, SaysWhoIsBlamedAndWhy) {
  JobSnapshot job = MakeJob("j", 2);
  job.straggler = {.kind = StragglerVerdict::Kind::kChronic,
                   .rank = 1,
                   .steps = 300,
                   .last_steps = 200,
                   .waited = absl::Seconds(4),
                   .span = absl::Seconds(10),
                   .why = Holdup::kStarved};
  const nlohmann::json verdict = Parse(job).at("straggler");
  EXPECT_EQ(verdict.at("kind"), "chronic");
  EXPECT_EQ(verdict.at("rank"), 1);
  EXPECT_EQ(verdict.at("why"), "its process is starved of CPU");
  job.standstill = Standstill{.waiting = {0},
                              .blamed = {{.rank = 1, .why = Holdup::kStopped}},
                              .tensor = "gradient",
                              .since = absl::Seconds(990)};
  const nlohmann::json standstill = Parse(job).at("standstill");
  EXPECT_EQ(standstill.at("waiting"), nlohmann::json::array({0}));
  EXPECT_EQ(standstill.at("blamed").at(0).at("rank"), 1);
  EXPECT_EQ(standstill.at("blamed").at(0).at("why"), "its process is stopped");
  EXPECT_EQ(standstill.at("tensor"), "gradient");
  EXPECT_EQ(standstill.at("for_seconds"), 10);
}

TEST(JobsJson, IsValidWhateverBytesATensorsNameHas) {
  JobSnapshot job = MakeJob("j", 2);
  job.standstill = Standstill{.waiting = {0},
                              .blamed = {{.rank = 1, .why = Holdup::kStopped}},
                              .tensor = "a\"\\\n\xff\x80",
                              .since = absl::Seconds(990)};
  EXPECT_EQ(Parse(job).at("standstill").at("tensor"), "a\"\\\n\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(JobsJson, TimesOfTheLastStepAreAfterItsBegin) {
  JobSnapshot job = MakeJob("j", 2);
  EXPECT_TRUE(Parse(job).at("last_step").is_null());
  job.last_step =
      StepRecord{.begin = absl::Seconds(900),
                 .end = absl::Seconds(904),
                 .buckets = {{.name = "conv1",
                              .bytes = 4096,
                              .complete = absl::Seconds(902),
                              .parts = {{.rank = 1, .entered = absl::Seconds(901), .left = absl::Seconds(904)}}}}};
  const nlohmann::json step = Parse(job).at("last_step");
  EXPECT_EQ(step.at("seconds"), 4);
  const nlohmann::json bucket = step.at("buckets").at(0);
  EXPECT_EQ(bucket.at("name"), "conv1");
  EXPECT_EQ(bucket.at("bytes"), 4096);
  EXPECT_EQ(bucket.at("complete"), 2);
  EXPECT_EQ(bucket.at("parts").at(0), nlohmann::json({{"rank", 1}, {"entered", 1}, {"left", 4}}));
}

TEST(JobsJson, WithoutJobsIsAnEmptyList) { EXPECT_EQ(JobsJson({}, kClockZero), "{\"jobs\":[]}"); }

// The page loads nothing from elsewhere, and its content security policy forbids that, too.
TEST(JobsPage, IsSelfContained) {
  const Page page = MakeJobsPage();
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("</html>"));
  for (const char* const sign : {"src=", "href=", "@import", "url(", "innerHTML", "https:"}) {
    EXPECT_EQ(page.body.find(sign), std::string::npos) << sign;
  }
  EXPECT_THAT(page.policy, HasSubstr("default-src 'none'; connect-src 'self'; script-src 'sha256-"));
  EXPECT_EQ(page.policy.find("unsafe"), std::string::npos);
}

}  // namespace
}  // namespace ronda
