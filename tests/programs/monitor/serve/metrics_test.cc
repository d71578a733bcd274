// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/files.h"
#include "tests/programs/monitor/serve/snapshots.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MakeJob;
using ::testing::Not;

const absl::Time kClockZero = absl::FromUnixSeconds(1'000'000'000);

std::string TextOf(const JobSnapshot& job) { return MetricsText({job}, kClockZero); }

int Count(const std::string& text, const std::string& part) {
  return static_cast<int>(std::vector<std::string>(absl::StrSplit(text, part)).size()) - 1;
}

TEST(MetricsText, HasEachMetricOfTheTableWithItsHelpAndType) {
  const std::string text = TextOf(MakeJob("j", 2));
  for (const char* const metric :
       {"ronda_job_info gauge", "ronda_rank_info gauge", "ronda_steps_total counter",
        "ronda_last_step_timestamp_seconds gauge", "ronda_lateness_seconds histogram",
        "ronda_blamed_wait_seconds_total counter", "ronda_wait_seconds_total counter",
        "ronda_collectives_total counter", "ronda_tensors_total counter", "ronda_payload_bytes_total counter",
        "ronda_wire_bytes_total counter", "ronda_schedule_locked gauge", "ronda_schedules_left_total counter",
        "ronda_control_messages_total counter", "ronda_gpu_seconds_total counter", "ronda_tensors_in_flight gauge"}) {
    EXPECT_EQ(Count(text, absl::StrCat("# TYPE ", metric, "\n")), 1) << metric;
  }
  EXPECT_EQ(Count(text, "# TYPE "), Count(text, "# HELP "));
}

TEST(MetricsText, HasASeriesForEachRankOfEachJob) {
  const std::string text = MetricsText({MakeJob("a", 2), MakeJob("b", 1)}, kClockZero);
  EXPECT_THAT(text,
              AllOf(HasSubstr("ronda_job_info{job_id=\"a\",size=\"2\",ranks_here=\"2\",name=\"\",command=\"\"} 1\n"),
                    HasSubstr("ronda_steps_total{job_id=\"a\",rank=\"0\"} 1\n"
                              "ronda_steps_total{job_id=\"a\",rank=\"1\"} 2\n"
                              "ronda_steps_total{job_id=\"b\",rank=\"0\"} 1\n# ")));
  EXPECT_THAT(text, HasSubstr("ronda_rank_info{job_id=\"a\",rank=\"1\",host=\"node\",pid=\"101\",local_rank=\"1\","
                              "cross_rank=\"0\"} 1\n"));
}

TEST(MetricsText, JobIsKnownByItsNameAndCommand) {
  JobSnapshot job = MakeJob("j", 1);
  job.origin = {.name = "resnet50", .command = "python3 train.py --note '\"hi\"' " + std::string(500, 'x')};
  EXPECT_THAT(TextOf(job), HasSubstr("name=\"resnet50\",command=\"python3 train.py --note '\\\"hi\\\"' xxx"));
  EXPECT_THAT(TextOf(job), Not(HasSubstr(std::string(200, 'x'))));
}

TEST(MetricsText, HistogramAddsUpItsClasses) {
  const std::string text = TextOf(MakeJob("j", 1));
  const std::string series = "ronda_lateness_seconds_bucket{job_id=\"j\",rank=\"0\",le=";
  EXPECT_THAT(text, AllOf(HasSubstr(series + "\"1e-05\"} 1\n"), HasSubstr(series + "\"0.001\"} 1\n"),
                          HasSubstr(series + "\"0.003\"} 2\n"), HasSubstr(series + "\"30\"} 2\n"),
                          HasSubstr(series + "\"+Inf\"} 3\n")));
  EXPECT_THAT(text, AllOf(HasSubstr("ronda_lateness_seconds_sum{job_id=\"j\",rank=\"0\"} 31.00201\n"),
                          HasSubstr("ronda_lateness_seconds_count{job_id=\"j\",rank=\"0\"} 3\n")));
  EXPECT_EQ(Count(text, series), 12) << "11 bounds and infinity";
}

TEST(MetricsText, TimesAreSeconds) {
  const std::string text = TextOf(MakeJob("j", 1));
  EXPECT_THAT(text, HasSubstr("ronda_wait_seconds_total{job_id=\"j\",rank=\"0\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("ronda_last_step_timestamp_seconds{job_id=\"j\",rank=\"0\"} 1000000900\n"));
  JobSnapshot fresh = MakeJob("j", 1);
  fresh.ranks[0].sample.last_step = absl::ZeroDuration();
  EXPECT_THAT(TextOf(fresh), HasSubstr("ronda_last_step_timestamp_seconds{job_id=\"j\",rank=\"0\"} 0\n"));
}

TEST(MetricsText, CountsHaveTheirLabels) {
  JobSnapshot job = MakeJob("j", 1);
  Statistics& counts = job.ranks[0].sample.counts;
  counts.schedules_begun = 4;
  counts.schedules_left = 3;
  counts.own_vetoes = 1;
  counts.lists_sent = 9;
  counts.payload_bytes = uint64_t{1} << 40;
  EXPECT_THAT(
      TextOf(job),
      AllOf(HasSubstr("ronda_collectives_total{job_id=\"j\",rank=\"0\",op=\"allreduce\",mode=\"scheduled\"} 7\n"),
            HasSubstr("ronda_schedule_locked{job_id=\"j\",rank=\"0\"} 1\n"),
            HasSubstr("ronda_schedules_left_total{job_id=\"j\",rank=\"0\",by=\"own\"} 1\n"),
            HasSubstr("ronda_schedules_left_total{job_id=\"j\",rank=\"0\",by=\"other\"} 2\n"),
            HasSubstr("ronda_control_messages_total{job_id=\"j\",rank=\"0\",kind=\"list_sent\"} 9\n"),
            HasSubstr("ronda_payload_bytes_total{job_id=\"j\",rank=\"0\"} 1099511627776\n"),
            Not(HasSubstr("mode=\"negotiated\""))));
}

TEST(MetricsText, TheGpusTimeOfTheBucketsThatWereTimedStandsForAll) {
  JobSnapshot job = MakeJob("j", 1);
  EXPECT_THAT(TextOf(job), Not(HasSubstr("ronda_gpu_seconds_total{")));
  job.ranks[0].sample.device_nanoseconds = {0, 500'000'000, 0, 0, 1'000'000'000};
  EXPECT_THAT(TextOf(job), AllOf(HasSubstr("ronda_gpu_seconds_total{job_id=\"j\",rank=\"0\",phase=\"pack\"} 16\n"),
                                 HasSubstr("ronda_gpu_seconds_total{job_id=\"j\",rank=\"0\",phase=\"unpack\"} 32\n"),
                                 Not(HasSubstr("phase=\"transfer\""))));
}

TEST(MetricsText, LabelsCannotBreakTheFormat) {
  const std::string text = TextOf(MakeJob("a\"b\\c\nd\xff\x01", 1));
  EXPECT_THAT(text, HasSubstr("ronda_steps_total{job_id=\"a\\\"b\\\\c\\nd??\",rank=\"0\"} 1\n"));
}

TEST(MetricsText, OfVeryManyRanksOnlyThoseThatCostMostHaveSeriesOfTheirOwn) {
  const std::string all = TextOf(MakeJob("j", kMostRanks));
  EXPECT_EQ(Count(all, "ronda_steps_total{"), static_cast<int>(kMostRanks));
  EXPECT_THAT(all, Not(HasSubstr("rank=\"others\"")));
  const std::string text = TextOf(MakeJob("j", 300));
  EXPECT_EQ(Count(text, "ronda_steps_total{"), static_cast<int>(kWorstRanks) + 1);
  EXPECT_THAT(text,
              AllOf(HasSubstr("ronda_steps_total{job_id=\"j\",rank=\"299\"} 300\n"),
                    HasSubstr("ronda_steps_total{job_id=\"j\",rank=\"284\"} 285\n"), Not(HasSubstr("rank=\"283\""))));
  // The series "others" has the sum of all ranks that do not have their own series, so that all series add up to the
  // sum of all ranks.
  EXPECT_THAT(text, HasSubstr(absl::StrCat("ronda_steps_total{job_id=\"j\",rank=\"others\"} ", 284 * 285 / 2, "\n")));
  EXPECT_THAT(text, HasSubstr("ronda_lateness_seconds_bucket{job_id=\"j\",rank=\"others\",le=\"0.003\"} 568\n"));
  EXPECT_THAT(text, HasSubstr("ronda_last_step_timestamp_seconds{job_id=\"j\",rank=\"others\"} 1000000900\n"));
  EXPECT_THAT(text, Not(HasSubstr("ronda_rank_info{job_id=\"j\",rank=\"others\"")));
}

TEST(MetricsText, WithoutJobsIsStillInOrder) {
  EXPECT_THAT(MetricsText({}, kClockZero), AllOf(HasSubstr("# TYPE ronda_steps_total counter\n"), Not(HasSubstr("{"))));
}

// Returns the words in `text` that begin with "ronda_".
std::set<std::string> NamesIn(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = text.find("ronda_"); at != std::string::npos; at = text.find("ronda_", at + 1)) {
    names.insert(text.substr(at, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at) - at));
  }
  return names;
}

TEST(MetricsText, TheManualKnowsEveryMetricAndTheDashboardNoOther) {
  std::set<std::string> metrics;
  for (const absl::string_view line : absl::StrSplit(TextOf(MakeJob("j", 1)), '\n')) {
    if (absl::StartsWith(line, "# TYPE ")) metrics.insert(std::vector<std::string>(absl::StrSplit(line, ' '))[2]);
  }
  const std::set<std::string> in_manual = NamesIn(ReadFile("docs/metrics.md").value_or(""));
  for (const std::string& metric : metrics) EXPECT_TRUE(in_manual.contains(metric)) << metric;
  const nlohmann::json dashboard = nlohmann::json::parse(ReadFile("docs/monitor_dashboard.json").value_or(""));
  std::set<std::string> in_dashboard;
  for (const nlohmann::json& panel : dashboard.at("panels")) {
    for (const nlohmann::json& target : panel.at("targets")) in_dashboard.merge(NamesIn(target.at("expr")));
  }
  EXPECT_GT(in_dashboard.size(), 8u);
  for (std::string name : in_dashboard) {
    for (const char* const suffix : {"_bucket", "_sum", "_count"}) {
      if (absl::EndsWith(name, suffix)) name.resize(name.size() - std::string(suffix).size());
    }
    EXPECT_TRUE(metrics.contains(name)) << name;
  }
}

TEST(MetricsText, PassesPromtool) {
  if (access("/usr/bin/promtool", X_OK) != 0) GTEST_SKIP() << "promtool is not here: apt-get install prometheus";
  const std::string path = absl::StrCat(::testing::TempDir(), "/metrics.", getpid());
  std::ofstream(path) << MetricsText({MakeJob("a\"b\\c\nd", 3), MakeJob("b", 300)}, kClockZero);
  FILE* const pipe = popen(absl::StrCat("/usr/bin/promtool check metrics < ", path, " 2>&1").c_str(), "r");
  std::string said;
  char buffer[256];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) said += buffer;
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace ronda
