// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/coordinator_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr WaitLimits kLimits = {.warning = absl::Seconds(4), .deadline = absl::Seconds(8)};
const absl::Time kStart = absl::UnixEpoch();

class AnswerWatchTest : public ::testing::Test {
 protected:
  // Returns a tensor that is reported at `now`.
  const TensorEntry& Report(const std::string& name, absl::Time now) {
    EXPECT_TRUE(queue_.Add({.request = {.name = name, .shape = {1}}}, now).ok());
    const TensorEntry& entry = *queue_.HandOverFresh(now).front();
    watch_.Expect(entry);
    return entry;
  }

  const std::shared_ptr<CallbackThread> callbacks_ = CallbackThread::Create({});
  FlightBoard flights_{2};
  TensorLog log_{&flights_.Of(1), nullptr, nullptr};
  TensorQueue queue_{callbacks_, nullptr, &log_};
  AnswerWatch watch_{&queue_, &flights_, kLimits};
};

TEST_F(AnswerWatchTest, RankZeroGetsMoreTimeThanItGivesTensors) {
  EXPECT_EQ(AnswerDeadline(kLimits), absl::Seconds(10));
  EXPECT_EQ(AnswerDeadline({.deadline = absl::Milliseconds(100)}), absl::Milliseconds(1100));
  EXPECT_EQ(AnswerDeadline({.deadline = absl::InfiniteDuration()}), absl::InfiniteDuration());
}

TEST_F(AnswerWatchTest, WatchWithoutTensorsHasNoDeadline) {
  EXPECT_EQ(watch_.next_check(), absl::InfiniteFuture());
  EXPECT_TRUE(watch_.Check(kStart + absl::Hours(24)).ok());
}

TEST_F(AnswerWatchTest, SilenceIsReportedWithTheTensor) {
  Report("x", kStart);
  EXPECT_EQ(watch_.next_check(), kStart + absl::Seconds(10));
  EXPECT_TRUE(watch_.Check(kStart + absl::Seconds(9)).ok());
  const absl::Status silent = watch_.Check(kStart + absl::Seconds(11));
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(silent.message()),
              HasSubstr("has not answered for 11s, and the deadline is 8s (waiting for tensor 'x')"));
}

TEST_F(AnswerWatchTest, AnsweredTensorIsNotWaitedFor) {
  queue_.Complete(&Report("x", kStart), absl::OkStatus());
  EXPECT_TRUE(watch_.Check(kStart + absl::Seconds(11)).ok());
  EXPECT_EQ(watch_.next_check(), absl::InfiniteFuture());
}

TEST_F(AnswerWatchTest, AnyAnswerShowsThatRankZeroIsThere) {
  Report("x", kStart);
  watch_.Heard(kStart + absl::Seconds(6));
  EXPECT_TRUE(watch_.Check(kStart + absl::Seconds(11)).ok());
  EXPECT_FALSE(watch_.Check(kStart + absl::Seconds(17)).ok());
}

TEST_F(AnswerWatchTest, NewLimitsHoldForWhatWaitsAlready) {
  Report("x", kStart);
  watch_.set_limits({.deadline = absl::Seconds(1)});
  EXPECT_TRUE(watch_.Check(kStart + absl::Seconds(1)).ok());
  EXPECT_FALSE(watch_.Check(kStart + absl::Seconds(3)).ok());
}

TEST_F(AnswerWatchTest, EndOfTheJobIsWaitedForToo) {
  watch_.ExpectEnd(kStart);
  EXPECT_THAT(std::string(watch_.Check(kStart + absl::Seconds(11)).message()), HasSubstr("the end of the job"));
}

}  // namespace
}  // namespace ronda
