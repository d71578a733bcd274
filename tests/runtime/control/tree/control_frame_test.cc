#include "runtime/control/tree/control_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "proto/ronda/v1/control.pb.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr int kSize = 5;

std::vector<ControlFrame> OneOfEach() {
  const Act act = {.rank = 4,
                   .kind = FlightKind::kWaiting,
                   .op = OpType::kReduce,
                   .name = "conv1",
                   .bytes = uint64_t{1} << 40,
                   .age = absl::Milliseconds(1234)};
  return {ChallengeFrame{.nonce = std::string("n\0nce", 5)},
          HelloFrame{.rank = 3, .size = kSize, .job_id = "job", .nonce = "n", .proof = "\xff\xfe"},
          WelcomeFrame{.proof = "p"},
          ArrivalFrame{.ranks = {1, 2, 4}},
          StartFrame{},
          ReportsFrame{.reports = {{.payload = "", .ranks = {0}}, {.payload = "\xff", .ranks = {1, 2, 3}}}},
          BroadcastFrame{.payload = std::string(1000, '\0')},
          CallOffFrame{.schedule = ~uint64_t{0}},
          FailureFrame{absl::DataLossError("lost \xff")},
          DepartureFrame{},
          HeartbeatFrame{},
          HeartbeatFrame{.acts = {act}}};
}

// Equal frames encode equally.
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
  const Act& act = std::get<HeartbeatFrame>(frame).acts.at(0);
  EXPECT_EQ(act.rank, 4);
  EXPECT_EQ(act.kind, FlightKind::kWaiting);
  EXPECT_EQ(act.op, OpType::kReduce);
  EXPECT_EQ(act.name, "conv1");
  EXPECT_EQ(act.bytes, uint64_t{1} << 40);
  EXPECT_EQ(act.age, absl::Milliseconds(1234));
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
  v1::ControlAct good;
  good.set_rank(1);
  good.set_kind(1);
  const auto refusal = [&](const auto& spoil) {
    v1::ControlAct act = good;
    spoil(act);
    message.mutable_heartbeat()->clear_acts();
    *message.mutable_heartbeat()->add_acts() = act;
    return Refusal(message);
  };
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_rank(kSize); }), HasSubstr("act.rank is 5"));
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_kind(0); }), HasSubstr("act.kind is 0"));
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_kind(9); }), HasSubstr("act.kind is 9"));
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_op(-1); }), HasSubstr("act.op is -1"));
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_age_ms(-1); }), HasSubstr("act.age_ms is -1"));
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_age_ms(INT64_MAX); }), HasSubstr("act.age_ms"));
  EXPECT_THAT(refusal([](v1::ControlAct& act) { act.set_name(std::string(97, 'x')); }), HasSubstr("act.name"));
}

// Whatever comes is taken for what it is, or refused: a frame that is accepted can be sent again.
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
}  // namespace ronda
