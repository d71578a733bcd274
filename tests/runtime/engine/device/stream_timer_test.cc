// SPDX-License-Identifier: Apache-2.0

#include "runtime/engine/device/stream_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/monitor/timeline/trace.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"
#include "tests/testing/fake_cuda/fake_cuda.h"

namespace ronda {
namespace {

using ::ronda::testing::FakeCuda;
using ::ronda::testing::Named;
using ::ronda::testing::StreamHold;
using ::ronda::testing::TraceEvent;
using ::testing::SizeIs;

// A stream and its timer. Work on the stream takes as long as the test holds the stream.
class StreamTimerTest : public ::testing::Test {
 protected:
  void Start() { EXPECT_EQ(timeline_.Start({.path = path_}), absl::OkStatus()); }

  void Wait() {
    const auto event = *device_->NewEvent();
    EXPECT_EQ(event->Record(stream_->handle()), absl::OkStatus());
    EXPECT_EQ(event->Wait(), absl::OkStatus());
  }

  // Enqueues a bucket with two parts on the stream.
  std::shared_ptr<BucketTiming> PutOnStream() {
    timer_.Begin();
    timer_.Mark(StreamPhase::kWaitForData);
    timer_.Mark(StreamPhase::kPack);
    return timer_.Take();
  }

  std::vector<TraceEvent> Drawn() {
    timeline_.Stop();
    const auto events = testing::ReadTraceFile(PathOfRank(path_, 0));
    EXPECT_TRUE(events.has_value());
    return events.value_or(std::vector<TraceEvent>());
  }

  const std::string path_ = ::testing::TempDir() + "stream_timer.json";
  FakeCuda cuda_{{}};
  const std::shared_ptr<Device> device_ = *Device::Open(cuda_.table(), 0);
  const std::unique_ptr<DeviceStream> stream_ = *DeviceStream::Create(device_.get());
  Timeline timeline_;
  StreamTimer timer_{device_, stream_->handle(), &timeline_};
};

TEST_F(StreamTimerTest, DoesNothingWithoutATimeline) {
  EXPECT_EQ(PutOnStream(), nullptr);
  StreamTimer never(device_, stream_->handle(), nullptr);
  never.Begin();
  never.Mark(StreamPhase::kPack);
  EXPECT_EQ(never.Take(), nullptr);
}

TEST_F(StreamTimerTest, TheTimesOfOneBucketIn32AreCounted) {
  DeviceTimes times;
  StreamTimer timer(device_, stream_->handle(), nullptr, &times);
  const size_t events = cuda_.recorded_events() + 1;  // including the event of Wait()
  for (uint64_t i = 0; i < 2 * DeviceTimes::kPeriod; ++i) {
    timer.Begin();
    timer.Mark(StreamPhase::kWaitForData);
    if (i == 0) Wait();  // until the stream comes to the mark
    {
      StreamHold hold(stream_->handle());
      absl::SleepFor(absl::Milliseconds(i == 0 ? 2 : 0));  // the time in which the device packs the first bucket
    }
    timer.Mark(StreamPhase::kPack);
    timer.Mark(StreamPhase::kUnpack);
    const std::shared_ptr<BucketTiming> timing = timer.Take();
    EXPECT_EQ(timing != nullptr, i % DeviceTimes::kPeriod == 0);
    if (timing == nullptr) continue;
    EXPECT_EQ(timing->parts.back().end->Wait(), absl::OkStatus());
    timer.Draw({.label = "x"}, *timing);
  }
  EXPECT_EQ(times.buckets, 2u);
  EXPECT_EQ(cuda_.recorded_events(), events + 2 * 4) << "the other buckets cost nothing";
  EXPECT_GE(times.nanoseconds[static_cast<size_t>(StreamPhase::kPack)], 2'000'000u);
  EXPECT_EQ(times.nanoseconds[static_cast<size_t>(StreamPhase::kReduce)], 0u);
}

TEST_F(StreamTimerTest, PartsFollowEachOtherWithinWhatTheHostHasSeen) {
  Start();
  for (int i = 0; i < 3; ++i) {
    const FlightTime before = FlightNow();
    auto timing = PutOnStream();
    ASSERT_NE(timing, nullptr);
    Wait();
    timer_.Draw({.label = "x", .bytes = 8}, *timing);
    EXPECT_LE(timing->submitted, FlightNow());
    EXPECT_GE(timing->submitted, before);
  }
  const FlightTime after = FlightNow();
  const auto events = Drawn();
  const auto buckets = Named(events, "ALLREDUCE"), waits = Named(events, "WAIT_FOR_DATA"),
             packs = Named(events, "PACK");
  ASSERT_THAT(buckets, SizeIs(3));
  ASSERT_THAT(waits, SizeIs(3));
  ASSERT_THAT(packs, SizeIs(3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(buckets[i].ts, waits[i].ts, 0.002);
    EXPECT_NEAR(waits[i].end(), packs[i].ts, 0.002);
    EXPECT_NEAR(packs[i].end(), buckets[i].end(), 0.004);
    EXPECT_LE(buckets[i].end(), absl::ToDoubleMicroseconds(after) + 0.002);
    if (i > 0) {
      EXPECT_LE(buckets[i - 1].end(), buckets[i].ts + 0.002);
    }
  }
  EXPECT_EQ(buckets[0].args.at("bucket"), "x");
}

TEST_F(StreamTimerTest, UnmarkedPartIsATransfer) {
  Start();
  timer_.Begin();
  timer_.Mark(StreamPhase::kWaitForData);
  auto timing = timer_.Take();
  Wait();
  timer_.Draw({.op = OpType::kAlltoall, .label = "x"}, *timing);
  const auto events = Drawn();
  EXPECT_THAT(Named(events, "TRANSFER"), SizeIs(1));
  EXPECT_THAT(Named(events, "ALLTOALL"), SizeIs(1));
}

// The device gets the second bucket before the host knows that the first has ended.
TEST_F(StreamTimerTest, BucketsUnderWayTogetherAreDrawnOneBehindTheOther) {
  Start();
  auto first = PutOnStream();
  auto second = PutOnStream();
  Wait();
  timer_.Draw({.label = "first"}, *first);
  timer_.Draw({.label = "second"}, *second);
  const auto buckets = Named(Drawn(), "ALLREDUCE");
  ASSERT_THAT(buckets, SizeIs(2));
  EXPECT_LE(buckets[0].end(), buckets[1].ts + 0.002);
}

TEST_F(StreamTimerTest, EventsAreUsedAgain) {
  Start();
  const auto bucket = [&] {
    auto timing = PutOnStream();
    Wait();
    timer_.Draw({.label = "x"}, *timing);
  };
  for (int i = 0; i < 3; ++i) bucket();
  const size_t events = cuda_.created_events();
  for (int i = 0; i < 10; ++i) bucket();
  EXPECT_EQ(cuda_.created_events(), events);
}

}  // namespace
}  // namespace ronda
