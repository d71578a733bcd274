// SPDX-License-Identifier: Apache-2.0

// Tests JobSampler with ranks in this process. The tests choose what each rank does, and when.
#include "programs/monitor/jobs/job_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "runtime/monitor/rank_meter.h"

namespace ronda {
namespace {

using ::testing::DoubleEq;
using ::testing::SizeIs;
using Kind = StragglerVerdict::Kind;

constexpr absl::Duration kStep = absl::Milliseconds(20);

class JobSamplerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int r = 0; r < kRanks; ++r) {
      ranks_.push_back(RankMeter::Create(
          {.job = job_, .topology = {.rank = r, .size = kRanks, .local_size = kRanks, .hostname = "node"}}));
    }
    std::vector<std::unique_ptr<RankReader>> readers = FindRanks(OfJob(job_));
    ASSERT_THAT(readers, SizeIs(kRanks));
    sampler_ = std::make_unique<JobSampler>(std::move(readers));
  }

  // Makes a step of one bucket, which takes the last 5 ms of the step. Rank 2 enters the bucket `late` after the
  // others.
  void Step(absl::Duration late) {
    for (int r = 0; r < kRanks; ++r) {
      const FlightTime begin = now_ + (r == 2 ? late : absl::ZeroDuration());
      ranks_[r]->BeginStep(now_);
      ranks_[r]->EnterBucket(begin, begin);
    }
    now_ += kStep;
    for (const auto& rank : ranks_) {
      rank->LeaveBucket({.tensors = 1, .payload_bytes = 1000, .wire_bytes = 500}, now_ - absl::Milliseconds(5));
    }
  }

  // Takes samples at 10 Hz.
  void StepAndSample(int steps, absl::Duration late = absl::ZeroDuration()) {
    for (int i = 0; i < steps; ++i) {
      Step(late);
      if (i % 5 == 4) sampler_->Sample(now_);
    }
  }

  static constexpr int kRanks = 3;
  const std::string job_ = absl::StrCat("job-sampler-test-", getpid());
  std::vector<std::unique_ptr<RankMeter>> ranks_;
  std::unique_ptr<JobSampler> sampler_;
  FlightTime now_ = absl::Seconds(1000);
};

TEST_F(JobSamplerTest, RatesAreOverTheLastSecond) {
  StepAndSample(50);
  now_ += absl::Seconds(10);
  sampler_->Sample(now_);
  StepAndSample(50);
  const JobSnapshot job = sampler_->Snapshot();
  EXPECT_EQ(job.job, job_);
  EXPECT_EQ(job.now, now_);
  ASSERT_THAT(job.ranks, SizeIs(kRanks));
  EXPECT_EQ(job.ranks[1].rank(), 1);
  EXPECT_EQ(job.ranks[1].sample.counts.steps, 100u);
  EXPECT_THAT(job.ranks[1].rates.steps_per_second, DoubleEq(50));
  EXPECT_THAT(job.ranks[1].rates.bytes_per_second, DoubleEq(50'000));
  EXPECT_THAT(job.ranks[1].rates.wire_ratio, DoubleEq(0.5));
  EXPECT_THAT(job.ranks[1].rates.waited_share, DoubleEq(0.75));
}

TEST_F(JobSamplerTest, LastStepHasTheWaitsForTheLateRank) {
  StepAndSample(5, absl::Milliseconds(10));
  const std::optional<StepRecord> step = sampler_->Snapshot().last_step;
  ASSERT_TRUE(step.has_value());
  ASSERT_THAT(step->buckets, SizeIs(1));
  const StepBucket& bucket = step->buckets[0];
  ASSERT_THAT(bucket.parts, SizeIs(kRanks));
  EXPECT_EQ(bucket.complete - bucket.parts[0].entered, absl::Milliseconds(10));
  EXPECT_EQ(bucket.complete, bucket.parts[2].entered);
}

TEST_F(JobSamplerTest, LatenessOfTheLastSecondForgetsWhatWasBefore) {
  StepAndSample(50, absl::Milliseconds(10));
  EXPECT_EQ(sampler_->Snapshot().ranks[2].rates.lateness, absl::Milliseconds(10));
  StepAndSample(50, absl::Milliseconds(4));
  const RankRates rates = sampler_->Snapshot().ranks[2].rates;
  EXPECT_EQ(rates.lateness, absl::Milliseconds(4));
  EXPECT_THAT(rates.blamed_share, DoubleEq(0.2));
}

TEST_F(JobSamplerTest, TotalsAreBetweenTheFirstAndTheLastStep) {
  sampler_->Sample(now_);
  now_ += absl::Minutes(1);  // the program reads its data
  StepAndSample(105, absl::Milliseconds(5));
  now_ += absl::Minutes(1);  // and saves its result
  sampler_->Sample(now_);
  const JobSnapshot job = sampler_->Snapshot();
  const RankTotals& totals = job.ranks[2].totals;
  EXPECT_EQ(totals.steps, 100u);
  EXPECT_EQ(totals.step_time, kStep);
  EXPECT_THAT(totals.waited_share, DoubleEq(0.5));
  EXPECT_THAT(totals.blamed_share, DoubleEq(0.25));
  EXPECT_THAT(job.ranks[0].totals.waited_share, DoubleEq(0.75));
}

TEST_F(JobSamplerTest, JobThatWasLookedAtOnceHasTheTimeOfItsSteps) {
  for (int i = 0; i < 3; ++i) Step(absl::ZeroDuration());
  now_ += absl::Minutes(1);
  sampler_->Sample(now_);
  const RankTotals totals = sampler_->Snapshot().ranks[0].totals;
  EXPECT_EQ(totals.steps, 0u);
  EXPECT_EQ(totals.step_time, kStep);
}

TEST_F(JobSamplerTest, SingleStepHasNoTime) {
  Step(absl::ZeroDuration());
  sampler_->Sample(now_);
  EXPECT_EQ(sampler_->Snapshot().ranks[0].totals.step_time, absl::ZeroDuration());
}

TEST_F(JobSamplerTest, WaitThatHasNotEndedCounts) {
  sampler_->Sample(now_);
  ranks_[0]->EnterBucket(now_, now_);
  sampler_->Sample(now_ + absl::Seconds(1));
  EXPECT_THAT(sampler_->Snapshot().ranks[0].rates.waited_share, DoubleEq(1));
  EXPECT_THAT(sampler_->Snapshot().ranks[1].rates.waited_share, DoubleEq(0));
}

// The sampler must notice at once that a rank has ended, because the next epoch may begin at once and be short.
TEST_F(JobSamplerTest, EndOfARankIsNoticedWithTheNextSample) {
  sampler_->Sample(now_);
  ranks_[1]->counters().steps.Add(7);
  ranks_[1].reset();
  sampler_->Sample(now_ + JobSampler::kPeriod);
  EXPECT_EQ(sampler_->living(), 2u);
  EXPECT_EQ(sampler_->Snapshot().ranks[1].sample.counts.steps, 7u) << "its last words";
}

TEST_F(JobSamplerTest, OneSampleHasNoRates) {
  sampler_->Sample(now_);
  EXPECT_EQ(sampler_->Snapshot().ranks[0].rates.steps_per_second, 0);
  EXPECT_EQ(sampler_->Snapshot().process_span, absl::ZeroDuration());
}

TEST_F(JobSamplerTest, LatenessAddsUpOverAllSamples) {
  StepAndSample(600, absl::Milliseconds(2));
  const JobSnapshot job = sampler_->Snapshot();
  EXPECT_EQ(job.buckets_measured, 600u);
  EXPECT_EQ(job.buckets_missed, 0u);
  EXPECT_EQ(job.ranks[2].lateness.last, 600u);
  EXPECT_EQ(job.ranks[2].lateness.blamed_wait, 600 * absl::Milliseconds(2));
  EXPECT_EQ(job.ranks[2].lateness.histogram.count, 600u);
  EXPECT_EQ(job.ranks[0].lateness.histogram.counts[0], 600u);
}

TEST_F(JobSamplerTest, SamplesThatComeTooLateMissBuckets) {
  StepAndSample(5);
  for (int i = 0; i < 300; ++i) Step(absl::ZeroDuration());
  sampler_->Sample(now_);
  const JobSnapshot job = sampler_->Snapshot();
  EXPECT_EQ(job.buckets_measured, 5u + 256u);
  EXPECT_EQ(job.buckets_missed, 44u);
}

TEST_F(JobSamplerTest, ChronicStragglerIsNamedAndUniformRanksAreNot) {
  StepAndSample(400);
  EXPECT_EQ(sampler_->Snapshot().straggler.kind, Kind::kNone);
  StepAndSample(150, absl::Milliseconds(4));
  EXPECT_EQ(sampler_->Snapshot().straggler.kind, Kind::kOneOff);
  StepAndSample(200, absl::Milliseconds(4));
  const StragglerVerdict verdict = sampler_->Snapshot().straggler;
  EXPECT_EQ(verdict.kind, Kind::kChronic);
  EXPECT_EQ(verdict.rank, 2);
  EXPECT_FALSE(sampler_->Snapshot().standstill.has_value());
}

TEST_F(JobSamplerTest, RankThatOthersWaitForIsAStandstill) {
  StepAndSample(5);
  for (const int r : {0, 1}) ranks_[r]->EnterBucket(now_, now_);
  now_ += absl::Seconds(2);
  sampler_->Sample(now_);
  const JobSnapshot job = sampler_->Snapshot();
  ASSERT_TRUE(job.standstill.has_value());
  EXPECT_THAT(job.standstill->waiting, ::testing::ElementsAre(0, 1));
  EXPECT_EQ(job.standstill->blamed[0].rank, 2);
}

TEST_F(JobSamplerTest, FasterJobIsToBeLookedAtMoreOften) {
  EXPECT_EQ(sampler_->NextPeriod(), JobSampler::kPeriod) << "nothing is known";
  StepAndSample(100);
  EXPECT_EQ(sampler_->NextPeriod(), JobSampler::kLongestPeriod) << "50 buckets a second";
  const FlightTime end = now_ + absl::Seconds(1);
  while (now_ < end) {
    for (int i = 0; i < 40; ++i) {
      Step(absl::ZeroDuration());
      now_ -= kStep - absl::Milliseconds(5);
    }
    sampler_->Sample(now_);
  }
  EXPECT_EQ(sampler_->NextPeriod(), absl::Milliseconds(320)) << "200 a second, of which 64 are the aim";
}

TEST_F(JobSamplerTest, ProcessesAreLookedAtOnceASecond) {
  for (int i = 0; i < 15; ++i) sampler_->Sample(now_ + i * JobSampler::kPeriod);
  const JobSnapshot job = sampler_->Snapshot();
  EXPECT_EQ(job.process_span, absl::Seconds(1));
  EXPECT_TRUE(job.ranks[0].is_alive);
  EXPECT_EQ(job.ranks[0].process_now.state, 'R');
}

// -- Ranks of other hosts --

// Rank 3 is on another host, whose monitor reports the rank's state at the time `taken`. It leaves each bucket at the
// same time as the ranks on this host.
class JobSamplerAcrossHostsTest : public JobSamplerTest {
 protected:
  void TellOfRank3(absl::Duration late, FlightTime taken) {
    const RankSample here = Read();
    RankSnapshot told = {
        .identity = {.job = job_, .topology = {.rank = 3, .size = 4, .hostname = "far"}, .process = {.pid = 9}},
        .process_now = {.state = 'S'}};
    told.sample = here;
    for (BucketEntry& entry : told.sample.entries) entry.time += static_cast<uint64_t>(absl::ToInt64Nanoseconds(late));
    others_["far:1"] = {
        .address = "far:1", .job = job_, .ranks = {told}, .taken = taken, .round_trip = absl::Milliseconds(1)};
  }
  RankSample Read() const { return FindRanks(OfJob(job_))[0]->Read(); }

  JobSampler::OtherHosts others_;
};

TEST_F(JobSamplerAcrossHostsTest, RankThatIsLateThereIsTheStraggler) {
  for (int i = 0; i < 40; ++i) {
    Step(absl::ZeroDuration());
    TellOfRank3(absl::Milliseconds(8), now_);
    if (i % 5 == 4) sampler_->Sample(now_, others_);
  }
  const JobSnapshot job = sampler_->Snapshot();
  ASSERT_THAT(job.ranks, SizeIs(4));
  EXPECT_FALSE(job.ranks[3].is_here);
  EXPECT_TRUE(job.ranks[3].is_heard);
  EXPECT_EQ(job.straggler.kind, Kind::kOneOff);
  EXPECT_EQ(job.straggler.rank, 3);
  EXPECT_EQ(job.straggler.waited / job.straggler.last_steps, absl::Milliseconds(8));
  EXPECT_EQ(sampler_->living(), 3u) << "those of this host";
}

TEST_F(JobSamplerAcrossHostsTest, NumbersBeginAnewWithARankThatIsNewThere) {
  StepAndSample(20);
  EXPECT_EQ(sampler_->Snapshot().buckets_measured, 20u);
  Step(absl::ZeroDuration());
  TellOfRank3(absl::ZeroDuration(), now_);
  sampler_->Sample(now_, others_);
  EXPECT_EQ(sampler_->Snapshot().buckets_measured, 21u) << "all that the ranks have kept";
  others_["far:1"].ranks[0].identity.process.pid = 10;
  sampler_->Sample(now_, others_);
  EXPECT_EQ(sampler_->Snapshot().buckets_measured, 21u);
}

TEST_F(JobSamplerAcrossHostsTest, HostThatIsSilentIsNotHeard) {
  Step(absl::ZeroDuration());
  TellOfRank3(absl::ZeroDuration(), now_);
  sampler_->Sample(now_ + OtherHost::kSilence, others_);
  EXPECT_FALSE(sampler_->Snapshot().ranks[3].is_heard);
}

}  // namespace
}  // namespace ronda
