// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/rank_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/time/time.h"

namespace ronda {
namespace {

FlightTime Microseconds(int64_t n) { return absl::Microseconds(n); }

constexpr RankMeter::Bucket kSum = {
    .op = OpType::kAllreduce, .mode = BucketMode::kScheduled, .tensors = 3, .payload_bytes = 400, .wire_bytes = 200};

class RankMeterTest : public ::testing::Test {
 protected:
  void CarryOut(const RankMeter::Bucket& bucket, FlightTime begin, FlightTime end) {
    meter_->EnterBucket(begin, begin);
    meter_->LeaveBucket(bucket, end);
  }

  // Returns the entry of bucket n.
  const RankWords::Entry& EntryOf(uint64_t n) const { return meter_->words().entries[n % RankWords::kEntries]; }

  std::unique_ptr<RankMeter> meter_ =
      RankMeter::Create({.job = "j", .topology = {.rank = 1, .size = 3, .local_size = 2, .hostname = "node"}});
};

TEST_F(RankMeterTest, WordsSayWhoTheRankIs) {
  const RankWords& words = meter_->words();
  EXPECT_EQ(words.magic, RankWords::kMagic);
  EXPECT_EQ(words.rank, 1);
  EXPECT_EQ(words.size, 3);
  EXPECT_EQ(words.pid, getpid());
  EXPECT_STREQ(words.job, "j");
  EXPECT_STREQ(words.host, "node");
}

TEST_F(RankMeterTest, NamesThatAreTooLongAreCut) {
  const auto meter = RankMeter::Create({.job = std::string(500, 'x'), .topology = {.hostname = std::string(500, 'y')}});
  EXPECT_EQ(std::string(meter->words().job), std::string(RankWords::kJobBytes - 1, 'x'));
  EXPECT_EQ(std::string(meter->words().host), std::string(RankWords::kHostBytes - 1, 'y'));
}

TEST_F(RankMeterTest, CountsWhatWasCarriedOutByOperationAndMode) {
  CarryOut(kSum, Microseconds(10), Microseconds(15));
  CarryOut(kSum, Microseconds(20), Microseconds(22));
  const Statistics counts = Read(meter_->counters());
  EXPECT_EQ(counts.tensors, 6u);
  EXPECT_EQ(counts.payload_bytes, 800u);
  EXPECT_EQ(counts.wire_bytes, 400u);
  EXPECT_EQ(counts.bucket_nanoseconds, 7000u);
  const auto& of_sums = meter_->words().collectives[static_cast<int>(OpType::kAllreduce)];
  EXPECT_EQ(of_sums[static_cast<int>(BucketMode::kScheduled)], 2u);
  EXPECT_EQ(of_sums[static_cast<int>(BucketMode::kNegotiated)], 0u);
}

TEST_F(RankMeterTest, BucketWithoutEffectCountsAsTimeAndKeepsItsNumber) {
  meter_->EnterBucket(Microseconds(10), Microseconds(10));
  meter_->LeaveWithoutEffect(Microseconds(14));
  EXPECT_EQ(Read(meter_->counters()).tensors, 0u);
  EXPECT_EQ(Read(meter_->counters()).bucket_nanoseconds, 4000u);
  EXPECT_EQ(meter_->words().buckets, 1u);
}

TEST_F(RankMeterTest, BucketIsCurrentFromEntryToEnd) {
  meter_->PassBucket();
  meter_->EnterBucket(Microseconds(10), Microseconds(10));
  EXPECT_EQ(meter_->words().current, 2u);
  EXPECT_EQ(meter_->words().current_since, 10'000u);
  meter_->LeaveBucket(kSum, Microseconds(15));
  EXPECT_EQ(meter_->words().current, 0u);
}

TEST_F(RankMeterTest, EntryIsWhenTheTensorsWereReadyAndTheBucketBeforeHadEnded) {
  CarryOut(kSum, Microseconds(10), Microseconds(20));
  meter_->EnterBucket(/*ready=*/Microseconds(5), /*now=*/Microseconds(30));
  EXPECT_EQ(EntryOf(2).time, 20'000u) << "it could not begin before";
  meter_->LeaveBucket(kSum, Microseconds(40));
  meter_->EnterBucket(/*ready=*/Microseconds(45), /*now=*/Microseconds(50));
  EXPECT_EQ(EntryOf(3).time, 45'000u) << "it has waited for other ranks since";
}

TEST_F(RankMeterTest, EntryTellsWhenTheRankHasLeft) {
  const RankWords::Entry& entry = meter_->words().entries[1];
  meter_->EnterBucket(absl::Seconds(1), absl::Seconds(1));
  EXPECT_EQ(entry.left, 0u);
  meter_->LeaveBucket(kSum, absl::Seconds(3));
  EXPECT_EQ(entry.left, 3'000'000'000u);
  meter_->EnterBucket(absl::Seconds(4), absl::Seconds(4));
  meter_->LeaveWithoutEffect(absl::Seconds(5));
  EXPECT_EQ(meter_->words().entries[2].left, 5'000'000'000u);
}

TEST_F(RankMeterTest, EntriesCarryTheStep) {
  CarryOut(kSum, Microseconds(10), Microseconds(20));
  meter_->BeginStep(Microseconds(25));
  CarryOut(kSum, Microseconds(30), Microseconds(40));
  EXPECT_EQ(EntryOf(1).step, 0u);
  EXPECT_EQ(EntryOf(2).step, 1u);
  EXPECT_EQ(Read(meter_->counters()).steps, 1u);
  EXPECT_EQ(meter_->words().last_step_time, 25'000u);
}

TEST_F(RankMeterTest, PassedBucketsLeaveTheirPlaceInTheRingAsItIs) {
  CarryOut(kSum, Microseconds(10), Microseconds(20));
  for (int i = 0; i < RankWords::kEntries; ++i) meter_->PassBucket();
  EXPECT_EQ(meter_->words().buckets, 1u + RankWords::kEntries);
  EXPECT_EQ(EntryOf(1).bucket, 1u);
}

TEST_F(RankMeterTest, RingHasTheLastEntries) {
  constexpr uint64_t kBuckets = RankWords::kEntries + 7;
  for (uint64_t n = 1; n <= kBuckets; ++n) {
    CarryOut(kSum, Microseconds(static_cast<int64_t>(10 * n)), Microseconds(static_cast<int64_t>(10 * n + 1)));
  }
  for (uint64_t n = kBuckets - RankWords::kEntries + 1; n <= kBuckets; ++n) {
    EXPECT_EQ(EntryOf(n).bucket, n);
    EXPECT_EQ(EntryOf(n).time, 10'000 * n);
  }
}

}  // namespace
}  // namespace ronda
