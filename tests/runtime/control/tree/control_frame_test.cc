// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/control.pb.h"
#include "runtime/control/tree/control_frame.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 5;

std::vector<ControlFrame> OneOfEach() {
  const RankEvent event = {.rank = 4,
                           .kind = FlightKind::kWaiting,
                           .op = OpType::kReduce,
                           .name = "conv1",
                           .bytes = uint64_t{1} << 40,
                           .age = absl::Milliseconds(1234)};
  return {ArrivalFrame{.ranks = {1, 2, 4}},
          StartFrame{},
          ReportsFrame{.reports = {{.payload = "", .ranks = {0}}, {.payload = "\xff", .ranks = {1, 2, 3}}}},
          BroadcastFrame{.payload = std::string(1000, '\0')},
          UnlockRequestFrame{.schedule = ~uint64_t{0}},
          FailureFrame{absl::DataLossError("lost \xff")},
          DepartureFrame{},
          ExitFrame{},
          HeartbeatFrame{},
          HeartbeatFrame{.events = {event}}};
}

// Encodes a frame, decodes it and encodes it again. Equal frames have equal encodings, so the test compares the
// encodings.
TEST(ControlFrameTest, EveryFrameSurvivesItsTravel) {
  for (const ControlFrame& frame : OneOfEach()) {
    const std::string bytes = Encode(frame);
    const absl::StatusOr<ControlFrame> decoded = DecodeControlFrame(bytes, kSize);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->index(), frame.index());
    EXPECT_EQ(Encode(*decoded), bytes);
  }
}

TEST(ControlFrameTest, FieldsArriveAsTheyWere) {
  const ControlFrame frame = *DecodeControlFrame(Encode(OneOfEach().back()), kSize);
  const RankEvent& event = std::get<HeartbeatFrame>(frame).events.at(0);
  EXPECT_EQ(event.rank, 4);
  EXPECT_EQ(event.kind, FlightKind::kWaiting);
  EXPECT_EQ(event.op, OpType::kReduce);
  EXPECT_EQ(event.name, "conv1");
  EXPECT_EQ(event.bytes, uint64_t{1} << 40);
  EXPECT_EQ(event.age, absl::Milliseconds(1234));
}

TEST(ControlFrameTest, LongFailuresAreCut) {
  const ControlFrame frame = FailureFrame{absl::InternalError(std::string(1 << 20, 'x'))};
  const absl::StatusOr<ControlFrame> decoded = DecodeControlFrame(Encode(frame), kSize);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::get<FailureFrame>(*decoded).failure.message().size(), size_t{64} << 10);
}

std::string Refusal(const v1::ControlFrame& message) {
  const absl::Status status = DecodeControlFrame(message.SerializeAsString(), kSize).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(ControlFrameTest, RanksThatAreNotInTheJobAreRefused) {
  v1::ControlFrame message;
  for (const std::vector<int>& runs : std::vector<std::vector<int>>{
           {}, {1}, {1, 0}, {-1, 1}, {5, 1}, {4, 2}, {0, 6}, {2, 1, 1, 1}, {1, 1, 1, 1}, {0, 1 << 30}}) {
    v1::ControlReport& report = *message.mutable_reports()->add_reports();
    for (const int number : runs) report.add_ranks(number);
    EXPECT_THAT(Refusal(message), HasSubstr("ranks")) << ::testing::PrintToString(runs);
    message.mutable_reports()->clear_reports();
  }
  message.mutable_arrival()->add_ranks(kSize);
  message.mutable_arrival()->add_ranks(1);
  EXPECT_THAT(Refusal(message), HasSubstr("ranks"));
}

TEST(ControlFrameTest, NumbersOutOfRangeAreRefusedByName) {
  v1::ControlFrame message;
  EXPECT_THAT(Refusal(message), HasSubstr("without content"));
  message.mutable_failure()->set_code(0);
  EXPECT_THAT(Refusal(message), HasSubstr("failure.code is 0"));
  message.mutable_failure()->set_code(17);
  EXPECT_THAT(Refusal(message), HasSubstr("failure.code is 17"));
  v1::ControlEvent good;
  good.set_rank(1);
  good.set_kind(1);
  const auto refusal = [&](const auto& spoil) {
    v1::ControlEvent event = good;
    spoil(event);
    message.mutable_heartbeat()->clear_events();
    *message.mutable_heartbeat()->add_events() = event;
    return Refusal(message);
  };
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_rank(kSize); }), HasSubstr("event.rank is 5"));
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_kind(0); }), HasSubstr("event.kind is 0"));
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_kind(9); }), HasSubstr("event.kind is 9"));
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_op(-1); }), HasSubstr("event.op is -1"));
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_age_ms(-1); }), HasSubstr("event.age_ms is -1"));
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_age_ms(INT64_MAX); }), HasSubstr("event.age_ms"));
  EXPECT_THAT(refusal([](v1::ControlEvent& event) { event.set_name(std::string(97, 'x')); }), HasSubstr("event.name"));
}

// Damaged bytes must be rejected, or decoded to a frame that can be encoded again.
TEST(ControlFrameTest, DamagedBytesAreRefusedOrMeanAFrame) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  int refused = 0;
  for (const ControlFrame& frame : OneOfEach()) {
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = Encode(frame);
      for (unsigned flips = 1 + random() % 3; flips > 0 && !bytes.empty(); --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
      const absl::StatusOr<ControlFrame> decoded = DecodeControlFrame(bytes, kSize);
      refused += !decoded.ok();
      if (decoded.ok()) {
        EXPECT_TRUE(DecodeControlFrame(Encode(*decoded), kSize).ok());
      }
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace

void PrintTo(const SharedReport& report, std::ostream* out) {
  *out << '"' << report.payload << "\" from " << ::testing::PrintToString(report.ranks);
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kEverything = size_t{1} << 30;

TEST(ReportBatchTest, EqualReportsBecomeOneWithTheirRanksInOrder) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {7}});
  batch.Add({.payload = "b", .ranks = {2}});
  batch.Add({.payload = "a", .ranks = {1, 3}});
  EXPECT_THAT(batch.Take(kEverything), ElementsAre(SharedReport{"a", {1, 3, 7}}, SharedReport{"b", {2}}));
  EXPECT_TRUE(batch.empty());
}

TEST(ReportBatchTest, ReportsOfOneRankKeepTheirOrder) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {1}});
  batch.Add({.payload = "a", .ranks = {1}});
  EXPECT_THAT(batch.Take(kEverything),
              ElementsAre(SharedReport{"a", {1}}, SharedReport{"b", {1}}, SharedReport{"a", {1}}));
}

TEST(ReportBatchTest, RankWithALaterReportDoesNotJoinAnEarlierOne) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {2}});
  batch.Add({.payload = "a", .ranks = {2}});
  EXPECT_THAT(batch.Take(kEverything),
              ElementsAre(SharedReport{"a", {1}}, SharedReport{"b", {2}}, SharedReport{"a", {2}}));
}

TEST(ReportBatchTest, ManyEqualReportsOfOneRankAreNotJoined) {
  ReportBatch batch;
  for (int i = 0; i < 3; ++i) batch.Add({.payload = "a", .ranks = {1}});
  for (int i = 0; i < 3; ++i) batch.Add({.payload = "a", .ranks = {2}});
  size_t from_two = 0;
  for (const SharedReport& report : batch.Take(kEverything)) {
    EXPECT_EQ(report.payload, "a");
    from_two += report.ranks.back() == 2;
  }
  EXPECT_EQ(from_two, 3U);
}

TEST(ReportBatchTest, TakesNoMoreThanAskedForButOneReportAtLeast) {
  ReportBatch batch;
  batch.Add({.payload = std::string(100, 'a'), .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {1}});
  batch.Add({.payload = "c", .ranks = {1}});
  EXPECT_EQ(batch.Take(10).size(), 1U);
  EXPECT_EQ(batch.Take(2).size(), 2U);
  EXPECT_THAT(batch.Take(2), IsEmpty());
}

TEST(ReportBatchTest, LaterReportDoesNotJoinOneThatWasTaken) {
  ReportBatch batch;
  batch.Add({.payload = "a", .ranks = {1}});
  batch.Add({.payload = "b", .ranks = {1}});
  EXPECT_THAT(batch.Take(1), ElementsAre(SharedReport{"a", {1}}));
  batch.Add({.payload = "a", .ranks = {2}});
  EXPECT_THAT(batch.Take(kEverything), ElementsAre(SharedReport{"b", {1}}, SharedReport{"a", {2}}));
}

// The reports of each rank come out in order. None is lost or duplicated.
TEST(ReportBatchTest, RandomReportsComeOutInTheOrderOfEachRank) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  ReportBatch batch;
  std::map<RankId, std::string> put, taken;
  const auto take = [&](size_t bytes) {
    for (const SharedReport& report : batch.Take(bytes)) {
      for (const RankId rank : report.ranks) taken[rank] += report.payload;
    }
  };
  for (int i = 0; i < 3000; ++i) {
    const RankId rank = static_cast<RankId>(random() % 5);
    const std::string payload(1, static_cast<char>('a' + random() % 3));
    batch.Add({.payload = payload, .ranks = {rank}});
    put[rank] += payload;
    if (random() % 8 == 0) take(random() % 6);
  }
  take(kEverything);
  EXPECT_EQ(taken, put);
}

}  // namespace

}  // namespace ronda
