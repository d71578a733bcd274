// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/proved_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "programs/monitor/serve/host_report.h"
#include "proto/ronda/v1/monitor.pb.h"
#include "tests/programs/monitor/serve/snapshots.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "f00d";
const std::string kPrefix = "/ronda.v1.MonitorService/";

class ProvedCallsTest : public ::testing::Test {
 protected:
  std::string Nonce() {
    v1::MonitorChallengeResponse response;
    const auto answer = calls_.Answer(kPrefix + "Challenge", "");
    EXPECT_TRUE(answer.ok() && response.ParseFromString(*answer));
    return response.nonce();
  }
  static v1::GetJobsRequest Proved(const std::string& nonce, const std::string& secret, const std::string& method) {
    v1::GetJobsRequest request;
    request.mutable_proof()->set_nonce(nonce);
    request.mutable_proof()->set_proof(SecretProof(secret, {"ronda.v1.MonitorService", nonce, kPrefix + method}));
    return request;
  }
  absl::StatusOr<std::string> GetJobs(const v1::GetJobsRequest& request) {
    return calls_.Answer(kPrefix + "GetJobs", request.SerializeAsString());
  }

  const std::vector<JobSnapshot> jobs_ = {testing::MakeJob("alpha", 2)};
  bool is_changed_ = false;
  const MonitorService service_{
      {.snapshots = [this] { return jobs_; },
       .ask = [this](const std::string&, const TimelineRequest&) -> absl::StatusOr<std::vector<RankAnswer>> {
         is_changed_ = true;
         return std::vector<RankAnswer>();
       },
       .end = [this](const std::string&) -> absl::StatusOr<pid_t> {
         is_changed_ = true;
         return 1;
       }}};
  ProvedCalls calls_{&service_, kSecret};
};

TEST_F(ProvedCallsTest, CallWithAProofIsAnswered) {
  const auto answer = GetJobs(Proved(Nonce(), kSecret, "GetJobs"));
  ASSERT_TRUE(answer.ok()) << answer.status();
  v1::GetJobsResponse jobs;
  ASSERT_TRUE(jobs.ParseFromString(*answer));
  EXPECT_EQ(jobs.jobs(0).job(), "alpha");
}

TEST_F(ProvedCallsTest, WrongProofsAreRefused) {
  EXPECT_EQ(GetJobs(v1::GetJobsRequest()).status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(GetJobs(Proved(std::string(kNonceBytes, 'x'), kSecret, "GetJobs")).status().code(),
            absl::StatusCode::kUnauthenticated)
      << "this nonce was not given out";
  EXPECT_EQ(GetJobs(Proved(Nonce(), "beef", "GetJobs")).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(GetJobs(Proved(Nonce(), kSecret, "Explain")).status().code(), absl::StatusCode::kPermissionDenied)
      << "a proof for another method";
  v1::GetJobsRequest other_purpose = Proved(Nonce(), kSecret, "GetJobs");
  other_purpose.mutable_proof()->set_proof(
      SecretProof(kSecret, {"ronda.v1.Control.Hello", other_purpose.proof().nonce(), kPrefix + "GetJobs"}));
  EXPECT_EQ(GetJobs(other_purpose).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(ProvedCallsTest, ProofCountsOnce) {
  const v1::GetJobsRequest request = Proved(Nonce(), kSecret, "GetJobs");
  EXPECT_TRUE(GetJobs(request).ok());
  EXPECT_EQ(GetJobs(request).status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(ProvedCallsTest, NetworkCallsChangeNothing) {
  for (const char* method : {"StartTimeline", "StopTimeline", "StopJob", "Nothing"}) {
    const auto answer = calls_.Answer(kPrefix + method, Proved(Nonce(), kSecret, method).SerializeAsString());
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kPermissionDenied) << method;
  }
  EXPECT_FALSE(is_changed_);
}

// -- The monitor as a caller --

TEST_F(ProvedCallsTest, MonitorsKnowEachOtherByTheSecret) {
  const auto call = [&](const std::string& method, const std::string& request) {
    return calls_.Answer(method, request);
  };
  const auto heard = AskForRanks("al", kSecret, call);
  ASSERT_TRUE(heard.ok()) << heard.status();
  EXPECT_EQ(heard->job, "alpha");
  EXPECT_EQ(heard->ranks.size(), 2u);
  EXPECT_EQ(AskForRanks("al", "beef", call).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(AskForRanks("beta", kSecret, call).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ProvedCallsTest, AnswerOfAMonitorWithoutTheSecretIsRefused) {
  ProvedCalls impostor(&service_, "beef");
  const auto lies = [&](const std::string& method, const std::string& request) -> absl::StatusOr<std::string> {
    const bool is_challenge = method == kPrefix + "Challenge";
    return is_challenge ? impostor.Answer(method, request) : service_.Answer(method, request);
  };
  EXPECT_THAT(AskForRanks("alpha", kSecret, lies).status().message(), HasSubstr("has another job's secret"));
}

// -- What it tells --

// Returns `job` as this host decodes it from another host's report. This host's clock, which the result uses, is a
// minute ahead of the other's.
absl::StatusOr<OtherHost> Told(const JobSnapshot& job) {
  const FlightTime there = job.now + absl::Milliseconds(100);
  const FlightTime here = there + absl::Minutes(1);
  return DecodeHostReport(EncodeHostReport(job, there),
                          {.asked = here - absl::Milliseconds(3), .answered = here + absl::Milliseconds(3)});
}

TEST(HostReportTest, RanksAreToldAsTheyAre) {
  JobSnapshot job = testing::MakeJob("alpha", 3);
  job.ranks[0].is_here = false;
  RankSnapshot& rank = job.ranks[2];
  rank.is_alive = false;
  rank.process_now = {.state = 'T', .running = absl::Seconds(5), .waiting = absl::Seconds(6)};
  rank.sample.buckets = 9;
  rank.sample.current = 9;
  rank.sample.current_since = absl::Seconds(901);
  rank.sample.device_nanoseconds = {1, 2, 3, 4, 5};
  rank.sample.entries = {{.bucket = 8, .time = 900'000'000'000, .step = 4, .left = 900'500'000'000},
                         {.bucket = 9, .time = 901'000'000'000, .step = 5}};
  rank.sample.last = FlightEvent{.kind = FlightKind::kStarted, .name = "x\x1b", .bytes = 4, .time = absl::Seconds(901)};
  const auto told = Told(job);
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->job, "alpha");
  EXPECT_EQ(told->taken, job.now + absl::Minutes(1));
  ASSERT_EQ(told->ranks.size(), 2u) << "those of that host";
  const RankSnapshot& heard = told->ranks[1];
  EXPECT_EQ(heard.rank(), 2);
  EXPECT_EQ(heard.identity.topology.hostname, "node");
  EXPECT_EQ(heard.identity.process.pid, 102);
  EXPECT_FALSE(heard.is_alive);
  EXPECT_EQ(heard.process_now.state, 'T');
  EXPECT_EQ(heard.process_now.waiting, absl::Seconds(6));
  EXPECT_EQ(heard.sample.counts.steps, 3u);
  EXPECT_EQ(heard.sample.counts.bucket_nanoseconds, 1'500'000'000u);
  EXPECT_EQ(heard.sample.collectives, rank.sample.collectives);
  EXPECT_EQ(heard.sample.device_nanoseconds, rank.sample.device_nanoseconds);
  EXPECT_EQ(heard.sample.current, 9u);
  EXPECT_EQ(heard.sample.current_since, absl::Seconds(961));
  ASSERT_EQ(heard.sample.entries.size(), 2u);
  EXPECT_EQ(heard.sample.entries[0],
            (BucketEntry{.bucket = 8, .time = 960'000'000'000, .step = 4, .left = 960'500'000'000}));
  EXPECT_EQ(heard.sample.entries[1].left, 0u);
  EXPECT_EQ(heard.sample.last->name, "x?");
  EXPECT_EQ(heard.sample.last->time, absl::Seconds(961));
}

TEST(HostReportTest, ImpossibleReportOfARankIsRefused) {
  const auto is_refused = [](const auto& spoil) {
    JobSnapshot job = testing::MakeJob("alpha", 1);
    job.ranks[0].sample.buckets = 9;
    job.ranks[0].sample.entries = {{.bucket = 8, .time = 1}, {.bucket = 9, .time = 2}};
    EXPECT_TRUE(Told(job).ok()) << Told(job).status();
    spoil(&job, &job.ranks[0]);
    return Told(job).status().code() == absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(is_refused([](JobSnapshot* job, RankSnapshot*) { job->job = "a b"; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->identity.topology.rank = 1; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->identity.topology.hostname = "\x1b"; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->sample.buckets = 8; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->sample.entries[0].bucket = 9; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->sample.entries[0].time = ~uint64_t{0}; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->sample.entries.resize(300); }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->sample.current = 10; }));
  EXPECT_TRUE(is_refused([](JobSnapshot*, RankSnapshot* rank) { rank->process_now.running = -absl::Seconds(1); }));
  EXPECT_TRUE(is_refused(
      [](JobSnapshot*, RankSnapshot* rank) { rank->sample.last = FlightEvent{.kind = static_cast<FlightKind>(99)}; }));
  EXPECT_FALSE(DecodeHostReport("\xff", {}).ok());
}

}  // namespace
}  // namespace ronda
