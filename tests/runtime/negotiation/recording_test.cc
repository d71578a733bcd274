// SPDX-License-Identifier: Apache-2.0

#include "runtime/negotiation/recording.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/recording.h"
#include "tests/runtime/negotiation/simulation.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kCacheCapacity = 8;

Recording Simulated(int steps) {
  Simulation simulation({.ranks = 3, .names = 12, .cache_capacity = kCacheCapacity, .seed = 7});
  simulation.Run(steps);
  simulation.Finish();
  EXPECT_TRUE(simulation.violations().empty());
  return simulation.recording();
}

std::string Encoded(const Recording& recording) {
  std::string bytes = EncodeHeader(recording.options);
  for (const NegotiationEvent& event : recording.events) bytes += Encode(event);
  return bytes;
}

TEST(Recording, OfASimulationReplaysToTheSameLists) {
  const Recording recording = Simulated(4000);
  EXPECT_GT(recording.events.size(), 500u);
  EXPECT_EQ(Replay(recording), absl::OkStatus());
}

TEST(Recording, OfSchedulesReplaysToTheSameLists) {
  Simulation simulation({.ranks = 2, .names = 5, .cache_capacity = 64, .seed = 9, .identical_steps = 2});
  simulation.Run(20000);
  EXPECT_GT(simulation.counts().vetoes, 0);
  Recording recording = simulation.recording();
  EXPECT_EQ(Replay(recording), absl::OkStatus());
  const auto decoded = DecodeRecording(Encoded(recording));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->options.schedule.identical_steps, 2);
  EXPECT_EQ(decoded->options.schedule.min_bucket_bytes, recording.options.schedule.min_bucket_bytes);
  EXPECT_EQ(decoded->options.schedule.hold, recording.options.schedule.hold);
  EXPECT_EQ(Replay(*decoded), absl::OkStatus());
  std::erase_if(recording.events,
                [](const NegotiationEvent& event) { return event.kind == NegotiationEvent::Kind::kUnlock; });
  EXPECT_FALSE(Replay(recording).ok()) << "reports while a schedule is locked";
}

TEST(Recording, HoldsTheSizesOfBuckets) {
  Negotiator negotiator({.world_size = 1});
  Recording recording = {{.world_size = 1}, {}};
  const auto step = [&](const std::vector<TensorRequest>& requests) {
    const RankReport report = {.requests = requests};
    recording.events.push_back(NegotiationEvent::Report(0, Encode(report), absl::UnixEpoch()));
    EXPECT_TRUE(negotiator.Add(0, report, absl::UnixEpoch()).ok());
    const ResponseList list = negotiator.TakeResponses();
    recording.events.push_back(NegotiationEvent::List(Encode(list), absl::UnixEpoch()));
    return list.buckets.size();
  };
  const std::vector<TensorRequest> two = {{.name = "a", .shape = {8}}, {.name = "b", .shape = {8}}};
  EXPECT_EQ(step(two), 1u);
  const Negotiator::BucketSizes sizes = {.threshold = 32, .min_bucket_bytes = 7};
  recording.events.push_back(NegotiationEvent::Sizes(sizes, absl::UnixEpoch()));
  negotiator.SetBucketSizes(sizes);
  EXPECT_EQ(step(two), 2u);
  const auto decoded = DecodeRecording(Encoded(recording));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(Replay(*decoded), absl::OkStatus());
}

TEST(Recording, SurvivesTheRoundTrip) {
  const Recording recording = Simulated(300);
  const auto decoded = DecodeRecording(Encoded(recording));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->options.world_size, 3);
  EXPECT_EQ(decoded->options.cache_capacity, kCacheCapacity);
  EXPECT_EQ(decoded->options.limits, recording.options.limits);
  EXPECT_EQ(decoded->options.fusion.threshold, recording.options.fusion.threshold);
  EXPECT_EQ(Encoded(*decoded), Encoded(recording));
  EXPECT_EQ(Replay(*decoded), absl::OkStatus());
}

TEST(Recording, FirstDifferenceIsSaid) {
  Recording recording = Simulated(300);
  size_t number = 0;
  ResponseList list;
  while (list.buckets.empty()) {
    const NegotiationEvent& event = recording.events.at(number++);
    if (event.kind == NegotiationEvent::Kind::kList) list = *DecodeResponseList(event.bytes, kCacheCapacity);
  }
  list.buckets.pop_back();
  recording.events[--number].bytes = Encode(list);
  const absl::Status replayed = Replay(recording);
  EXPECT_EQ(replayed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(replayed.message()),
              HasSubstr("event " + std::to_string(number) + ": the recorded list has"));
}

TEST(Recording, MissingReportIsNoticed) {
  Recording recording = Simulated(300);
  const auto report = std::find_if(recording.events.begin(), recording.events.end(), [](const NegotiationEvent& event) {
    return event.kind == NegotiationEvent::Kind::kReport &&
           !DecodeRankReport(event.bytes, kCacheCapacity)->requests.empty();
  });
  ASSERT_NE(report, recording.events.end());
  recording.events.erase(report);
  EXPECT_FALSE(Replay(recording).ok());
}

TEST(Recording, IncompleteEventIsLeftOut) {
  const Recording recording = Simulated(300);
  const std::string bytes = Encoded(recording);
  for (size_t cut : {1, 10, 20}) {
    const auto decoded = DecodeRecording(absl::string_view(bytes).substr(0, bytes.size() - cut));
    ASSERT_TRUE(decoded.ok());
    EXPECT_THAT(decoded->events, SizeIs(testing::Lt(recording.events.size())));
    EXPECT_EQ(Replay(*decoded), absl::OkStatus());
  }
}

TEST(Recording, AnythingElseIsRefused) {
  EXPECT_FALSE(DecodeRecording("").ok());
  EXPECT_FALSE(DecodeRecording("RONDANEG").ok());
  EXPECT_FALSE(DecodeRecording(std::string(100, 'x')).ok());
  std::string later = EncodeHeader({.world_size = 2});
  later[8] = 99;
  EXPECT_THAT(std::string(DecodeRecording(later).status().message()), HasSubstr("a recording of version 99"));
  EXPECT_FALSE(DecodeRecording(EncodeHeader({.world_size = -1})).ok());
  Recording unknown = {{.world_size = 1}, {{static_cast<NegotiationEvent::Kind>(9), absl::UnixEpoch(), 0, ""}}};
  EXPECT_EQ(Replay(unknown).code(), absl::StatusCode::kInvalidArgument);
  Recording damaged = {{.world_size = 1}, {NegotiationEvent::Report(0, "damage", absl::UnixEpoch())}};
  EXPECT_EQ(Replay(damaged).code(), absl::StatusCode::kInvalidArgument);
  for (NegotiationEvent event :
       {NegotiationEvent::Unlock({.rounds = 1}, absl::UnixEpoch()), NegotiationEvent::Sizes({}, absl::UnixEpoch())}) {
    if (event.kind == NegotiationEvent::Kind::kSizes) event.bytes.pop_back();
    EXPECT_EQ(Replay({{.world_size = 1}, {event}}).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(DecodeRecording(EncodeHeader({.world_size = 1, .schedule = {.identical_steps = -1}})).ok());
}

TEST(RecordingFile, HoldsEveryEventAsSoonAsItIsAppended) {
  const std::string path = testing::TempDir() + "/negotiation." + std::to_string(getpid());
  const Recording recording = Simulated(300);
  auto file = RecordingFile::Create(path, recording.options);
  ASSERT_TRUE(file.ok()) << file.status();
  size_t written = 0;
  for (const NegotiationEvent& event : recording.events) {
    ASSERT_TRUE((*file)->Append(event).ok());
    if (++written % 50 != 0) continue;
    const auto read = ReadRecording(path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(read->events, SizeIs(written));
  }
  EXPECT_EQ(Replay(*ReadRecording(path)), absl::OkStatus());
  unlink(path.c_str());
}

TEST(RecordingFile, ErrorsNameThePath) {
  const std::string path = testing::TempDir() + "/no such folder/recording";
  EXPECT_THAT(std::string(RecordingFile::Create(path, {}).status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(ReadRecording(path).status().message()), HasSubstr(path));
}

// The recording in testdata was made when the format was new. The recorded job has three ranks, and uses joins, process
// sets, groups and deadlines. If changed code produced other lists than the recording, ranks of one job could agree on
// different operations.
TEST(Recording, CheckedInOneReplaysToTheSameLists) {
  const std::string path = "tests/runtime/negotiation/testdata/three_ranks.negotiation";
  const auto recording = ReadRecording(path);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_GT(recording->events.size(), 100u);
  EXPECT_EQ(Replay(*recording), absl::OkStatus());
}

}  // namespace
}  // namespace ronda
