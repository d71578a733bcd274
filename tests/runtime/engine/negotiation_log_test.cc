// SPDX-License-Identifier: Apache-2.0

// Tests that the coordinator's recording of a job can be replayed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <latch>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/recording.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::AddSet;
using ::ronda::testing::CarryOut;
using ::ronda::testing::Join;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Succeed;
using ::ronda::testing::Sum;
using ::testing::HasSubstr;

TEST(NegotiationLog, OfAJobWithErrorsDeadlinesSetsAndJoinsReplays) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/negotiation.log");
  testing::FakeClock clock;
  const Runtime::Options options = {.tunables = {.stall_deadline = absl::Milliseconds(200), .negotiation_log = path},
                                    .clock = &clock};
  std::latch expired(1);
  RunRuntimes(3, options, [&](Runtime& runtime) {
    const size_t rank = static_cast<size_t>(runtime.topology().rank);
    const ProcessSetId set = AddSet(runtime, {0, 2});
    for (int step = 0; step < 3; ++step) {
      std::vector<float> data(3, 1.0f);
      Succeed(runtime, Sum("x", &data));
      std::vector<float> uneven(3 + rank, 1.0f);
      EXPECT_FALSE(CarryOut(runtime, Sum("mismatch", &uneven)).ok());
    }
    std::vector<float> data(3, 1.0f);
    if (rank == 0) {
      Submission lonely = Sum("lonely", &data);
      lonely.request.process_set = set;
      const auto handle = runtime.Submit(lonely);
      ASSERT_TRUE(handle.ok());
      EXPECT_EQ(testing::WaitAndAdvance(**handle, &clock).code(), absl::StatusCode::kDeadlineExceeded);
      expired.count_down();
    }
    expired.wait();
    Succeed(runtime, Join());
  });
  const auto recording = ReadRecording(path);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_GT(recording->events.size(), 20U);
  EXPECT_TRUE(Replay(*recording).ok()) << Replay(*recording);
}

TEST(NegotiationLog, OfAJobThatLeavesSchedulesReplays) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/schedules.log");
  RunRuntimes(2, {.tunables = {.negotiation_log = path}}, [&](Runtime& runtime) {
    std::vector<float> data(3, 1.0f);
    for (int i = 0; i < 3; ++i) {
      for (int step = 0; step < 12; ++step) Succeed(runtime, Sum("x", &data));
      Succeed(runtime, Sum(absl::StrCat("new", i), &data));
    }
    EXPECT_GE(runtime.statistics().schedules_left, 2U);
  });
  const auto recording = ReadRecording(path);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_TRUE(std::any_of(recording->events.begin(), recording->events.end(),
                          [](const NegotiationEvent& event) { return event.kind == NegotiationEvent::Kind::kUnlock; }));
  EXPECT_TRUE(Replay(*recording).ok()) << Replay(*recording);
}

TEST(NegotiationLog, HasTheSettingsOfRankZero) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/settings.log");
  RunRuntimes(2, {.tunables = {.min_bucket_bytes = 12345, .chunk_bytes = 8192, .negotiation_log = path}},
              [&](Runtime& runtime) { Succeed(runtime, testing::Barrier("b")); });
  const auto recording = ReadRecording(path);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_EQ(recording->options.schedule.min_bucket_bytes, 12345U);
  const auto first_list =
      std::find_if(recording->events.begin(), recording->events.end(),
                   [](const NegotiationEvent& event) { return event.kind == NegotiationEvent::Kind::kList; });
  ASSERT_NE(first_list, recording->events.end());
  const auto list = DecodeResponseList(first_list->bytes, Tunables().cache_capacity);
  ASSERT_TRUE(list.ok() && list->settings.has_value());
  EXPECT_EQ(list->settings->chunk_bytes, 8192U);
}

TEST(NegotiationLog, ThatCannotBeWrittenFailsTheJobAtItsBeginning) {
  testing::RunRanks(2, [](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({.tunables = {.negotiation_log = "/nonexistent/negotiation.log"}},
                                         {.rank = rank, .size = 2}, std::move(transport));
    const absl::Status status = CarryOut(*runtime, testing::Barrier("b"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 (host localhost, pid "));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("RONDA_NEGOTIATION_LOG: cannot create /nonexistent/negotiation.log"));
  });
}

}  // namespace
}  // namespace ronda
