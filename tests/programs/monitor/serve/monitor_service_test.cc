// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/monitor_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/monitor.pb.h"
#include "tests/programs/monitor/serve/snapshots.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

class MonitorServiceTest : public ::testing::Test {
 protected:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(const std::string& method, const Request& request) {
    const auto answer = service_.Answer("/ronda.v1.MonitorService/" + method, request.SerializeAsString());
    if (!answer.ok()) return answer.status();
    Response response;
    EXPECT_TRUE(response.ParseFromString(*answer));
    return response;
  }

  std::vector<JobSnapshot> jobs_ = {testing::MakeJob("alpha", 2), testing::MakeJob("beta", 1)};
  std::string asked_;
  const MonitorService service_{
      {.snapshots = [this] { return jobs_; },
       .ask = [this](const std::string& job,
                     const TimelineRequest& request) -> absl::StatusOr<std::vector<RankAnswer>> {
         const bool is_start = request.kind == TimelineRequest::Kind::kStart;
         asked_ += absl::StrCat(is_start ? "start " : "stop ", job, " ", request.path, ";");
         return std::vector<RankAnswer>{
             {.rank = 0, .file = "/t.rank0.json"}, {.rank = 1, .file = absl::NotFoundError("no folder")}, {.rank = 2}};
       },
       .end = [this](const std::string& job) -> absl::StatusOr<pid_t> {
         asked_ += "end " + job + ";";
         return 77;
       }}};
};

TEST_F(MonitorServiceTest, ShowsTheJobs) {
  jobs_[0].standstill = Standstill{.waiting = {0},
                                   .blamed = {{.rank = 1, .why = Holdup::kStopped}},
                                   .tensor = "any \xff bytes",
                                   .since = jobs_[0].now - absl::Seconds(3)};
  const auto shown = Call<v1::GetJobsResponse>("GetJobs", v1::GetJobsRequest());
  ASSERT_TRUE(shown.ok()) << shown.status();
  ASSERT_EQ(shown->jobs_size(), 2);
  const v1::Job& job = shown->jobs(0);
  EXPECT_EQ(job.job(), "alpha");
  EXPECT_EQ(job.size(), 2);
  ASSERT_EQ(job.ranks_size(), 2);
  EXPECT_EQ(job.ranks(1).rank(), 1);
  EXPECT_EQ(job.ranks(1).host(), "node");
  EXPECT_EQ(job.ranks(1).pid(), 101);
  EXPECT_EQ(job.ranks(1).steps(), 2u);
  EXPECT_EQ(job.ranks(1).lateness_buckets(), 3u);
  EXPECT_EQ(job.ranks(1).blamed_wait_seconds(), 1);
  EXPECT_EQ(job.standstill().tensor(), "any \xff bytes");
  EXPECT_EQ(job.standstill().for_seconds(), 3);
  EXPECT_EQ(job.standstill().blamed(0).rank(), 1);
  EXPECT_THAT(job.why(), HasSubstr("its process is stopped"));
  EXPECT_FALSE(job.has_straggler());
  EXPECT_FALSE(shown->jobs(1).has_standstill());
}

TEST_F(MonitorServiceTest, NamesThatAreNoTextAreMadeOne) {
  jobs_[0].ranks[0].identity.topology.hostname = "n\xff";
  const auto shown = Call<v1::GetJobsResponse>("GetJobs", v1::GetJobsRequest());
  ASSERT_TRUE(shown.ok()) << shown.status();
  EXPECT_EQ(shown->jobs(0).ranks(0).host(), "n?");
}

TEST_F(MonitorServiceTest, FindsAJobByTheBeginningOfItsName) {
  v1::ExplainRequest request;
  request.set_job("be");
  const auto explained = Call<v1::ExplainResponse>("Explain", request);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_EQ(explained->text(), "no rank holds the others up (0 collectives looked at)\n");
  request.set_job("");
  EXPECT_THAT(Call<v1::ExplainResponse>("Explain", request).status().message(),
              HasSubstr("there are 2 jobs: say which one of alpha, beta"));
  request.set_job("gamma");
  EXPECT_EQ(Call<v1::ExplainResponse>("Explain", request).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(MonitorServiceTest, AsksTheRanksForTimelines) {
  v1::StartTimelineRequest start;
  start.set_job("alp");
  start.set_path("/t.json");
  const auto answered = Call<v1::TimelineResponse>("StartTimeline", start);
  ASSERT_TRUE(answered.ok()) << answered.status();
  ASSERT_EQ(answered->answers_size(), 3);
  using Answer = v1::TimelineResponse::Answer;
  EXPECT_EQ(answered->answers(0).state(), Answer::STATE_DONE);
  EXPECT_EQ(answered->answers(0).file(), "/t.rank0.json");
  EXPECT_EQ(answered->answers(1).state(), Answer::STATE_FAILED);
  EXPECT_EQ(answered->answers(1).error(), "no folder");
  EXPECT_EQ(answered->answers(2).state(), Answer::STATE_PENDING);
  v1::StopTimelineRequest stop;
  stop.set_job("alpha");
  EXPECT_TRUE(Call<v1::TimelineResponse>("StopTimeline", stop).ok());
  EXPECT_EQ(asked_, "start alpha /t.json;stop alpha ;");
}

TEST_F(MonitorServiceTest, EndsTheJobThatIsNamed) {
  v1::StopJobRequest request;
  EXPECT_FALSE(Call<v1::StopJobResponse>("StopJob", request).ok()) << "which one?";
  EXPECT_EQ(asked_, "");
  request.set_job("beta");
  const auto ended = Call<v1::StopJobResponse>("StopJob", request);
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_EQ(ended->launcher_pid(), 77);
  EXPECT_EQ(asked_, "end beta;");
}

TEST_F(MonitorServiceTest, RefusesWhatItDoesNotKnow) {
  for (const char* method :
       {"/ronda.v1.MonitorService/", "/ronda.v1.MonitorService/Nothing", "GetJobs", "/GetJobs", ""}) {
    EXPECT_EQ(service_.Answer(method, "").status().code(), absl::StatusCode::kUnimplemented) << method;
  }
  const auto damaged = service_.Answer("/ronda.v1.MonitorService/StopJob", "\x0a\xff");
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(damaged.status().message(), HasSubstr("2 bytes are no ronda.v1.StopJobRequest"));
  EXPECT_EQ(asked_, "");
}

}  // namespace
}  // namespace ronda
