// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/files.h"
#include "runtime/monitor/timeline/trace.h"
#include "tests/runtime/monitor/timeline/event_factory.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"

namespace ronda::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Returns the events of the file. Fails the test if the file is not JSON.
std::vector<TraceEvent> Drawn(TraceBuilder& builder) {
  const std::string text = "[" + builder.TakeFinished() + builder.Unfinished() + "]";
  const auto events = ReadTrace(text);
  EXPECT_TRUE(events.has_value()) << text;
  return events.value_or(std::vector<TraceEvent>());
}

std::vector<TraceEvent> DrawAll(const std::vector<TimelineEvent>& events) {
  TraceBuilder builder({.rank = 2, .host = "h"});
  for (const TimelineEvent& event : events) builder.Add(event);
  return Drawn(builder);
}

// Returns a text such as "NEGOTIATE_ALLREDUCE 10-20" for each span in the row of this name.
std::vector<std::string> Spans(const std::vector<TraceEvent>& events, const std::string& row) {
  std::vector<std::string> spans;
  for (const TraceEvent& event : events) {
    if (event.tid != RowOf(events, row)) continue;
    if (event.ph == "X") spans.push_back(absl::StrCat(event.name, " ", event.ts, "-", event.end()));
    if (event.ph == "B") spans.push_back(absl::StrCat(event.name, " ", event.ts, "-"));
    if (event.ph == "i") spans.push_back(absl::StrCat(event.name, " ", event.ts));
  }
  return spans;
}

std::vector<TimelineEvent> NegotiatedRun() {
  return {MakeEvent(TimelineKind::kSubmitted, "w", 10),    MakeEvent(TimelineKind::kReported, "w", 12),
          MakeEvent(TimelineKind::kAgreed, "w", 20),       MakeEvent(TimelineKind::kBucketStarted, "w", 30, 1),
          MakeEvent(TimelineKind::kBucketMember, "w", 30), EndEvent(BucketOutcome::kDone, 45)};
}

TEST(TraceBuilderTest, NegotiatedTensorHasAllPartsOfItsWay) {
  const auto events = DrawAll(NegotiatedRun());
  EXPECT_THAT(Spans(events, "w"),
              ElementsAre("w 10-45", "NEGOTIATE_ALLREDUCE 10-20", "QUEUE 20-30", "ALLREDUCE 30-45"));
  EXPECT_THAT(Spans(events, "collectives"), ElementsAre("ALLREDUCE 30-45"));
}

TEST(TraceBuilderTest, CollectiveSaysWhatItMoved) {
  TimelineEvent bucket = MakeEvent(TimelineKind::kBucketStarted, "w and 2 more", 30, 3);
  bucket.op = OpType::kReduceScatter;
  bucket.dtype = DType::kBfloat16;
  const auto drawn = Named(DrawAll({bucket, EndEvent(BucketOutcome::kDone, 45)}), "REDUCESCATTER");
  ASSERT_THAT(drawn, SizeIs(1));
  EXPECT_EQ(drawn[0].args.at("bucket"), "w and 2 more");
  EXPECT_EQ(drawn[0].args.at("bytes"), "400");
  EXPECT_EQ(drawn[0].args.at("tensors"), "3");
  EXPECT_EQ(drawn[0].args.at("dtype"), "bfloat16");
  EXPECT_EQ(drawn[0].args.at("outcome"), "done");
}

TEST(TraceBuilderTest, TensorOfTheLockedScheduleIsNotNegotiated) {
  const auto events =
      DrawAll({MakeEvent(TimelineKind::kSubmitted, "w", 10), MakeEvent(TimelineKind::kBucketStarted, "w", 30, 1),
               MakeEvent(TimelineKind::kBucketMember, "w", 30), EndEvent(BucketOutcome::kDone, 45)});
  EXPECT_THAT(Spans(events, "w"), ElementsAre("w 10-45", "LOCKED 10-30", "ALLREDUCE 30-45"));
}

TEST(TraceBuilderTest, ScheduleThatBeginsDuringANegotiationEndsIt) {
  const auto events =
      DrawAll({MakeEvent(TimelineKind::kSubmitted, "w", 10), MakeEvent(TimelineKind::kReported, "w", 11),
               MakeEvent(TimelineKind::kBucketStarted, "w", 30, 1), MakeEvent(TimelineKind::kBucketMember, "w", 30),
               EndEvent(BucketOutcome::kDone, 45)});
  EXPECT_THAT(Spans(events, "w"), ElementsAre("w 10-45", "LOCKED 10-30", "ALLREDUCE 30-45"));
}

TEST(TraceBuilderTest, VetoedTensorIsNegotiatedFromItsSubmissionOn) {
  TraceBuilder builder({.rank = 2, .host = "h"});
  for (const TimelineEvent& event :
       {MakeEvent(TimelineKind::kSubmitted, "w", 10), MakeEvent(TimelineKind::kBucketStarted, "w", 30, 1),
        MakeEvent(TimelineKind::kBucketMember, "w", 30), EndEvent(BucketOutcome::kVetoed, 32),
        MakeEvent(TimelineKind::kReported, "w", 33), MakeEvent(TimelineKind::kAgreed, "w", 40),
        MakeEvent(TimelineKind::kBucketStarted, "w", 41, 1), MakeEvent(TimelineKind::kBucketMember, "w", 41),
        EndEvent(BucketOutcome::kDone, 50)}) {
    builder.Add(event);
  }
  const auto events = Drawn(builder);
  EXPECT_THAT(Spans(events, "w"),
              ElementsAre("w 10-50", "NEGOTIATE_ALLREDUCE 10-40", "QUEUE 40-41", "ALLREDUCE 41-50"));
  EXPECT_THAT(Spans(events, "collectives"), ElementsAre("ALLREDUCE 30-32", "ALLREDUCE 41-50"));
  EXPECT_EQ(Named(events, "ALLREDUCE")[0].args.at("outcome"), "vetoed");
}

TEST(TraceBuilderTest, UnfinishedEventIsDrawnWithoutAnEnd) {
  std::vector<TimelineEvent> run = NegotiatedRun();
  const std::vector<std::vector<std::string>> expected = {
      {"w 10-"},
      {"w 10-", "NEGOTIATE_ALLREDUCE 10-"},
      {"w 10-", "NEGOTIATE_ALLREDUCE 10-20", "QUEUE 20-"},
      {"w 10-", "NEGOTIATE_ALLREDUCE 10-20", "QUEUE 20-"},
      {"w 10-", "NEGOTIATE_ALLREDUCE 10-20", "QUEUE 20-30", "ALLREDUCE 30-"}};
  for (size_t count = 1; count < run.size(); ++count) {
    const auto events = DrawAll({run.begin(), run.begin() + static_cast<ptrdiff_t>(count)});
    EXPECT_EQ(Spans(events, "w"), expected[count - 1]) << count;
    EXPECT_THAT(Spans(events, "collectives"), SizeIs(count < 4 ? 0 : 1)) << count;
  }
}

TEST(TraceBuilderTest, FinishedSpansAreDrawnOnce) {
  TraceBuilder builder({});
  for (const TimelineEvent& event : NegotiatedRun()) builder.Add(event);
  EXPECT_FALSE(builder.TakeFinished().empty());
  EXPECT_EQ(builder.TakeFinished(), "");
  EXPECT_EQ(builder.Unfinished(), "");
}

TEST(TraceBuilderTest, FailedTensorEndsWhereItWas) {
  const auto events = DrawAll({MakeEvent(TimelineKind::kSubmitted, "w", 10),
                               MakeEvent(TimelineKind::kReported, "w", 12), MakeEvent(TimelineKind::kFailed, "w", 20)});
  EXPECT_THAT(Spans(events, "w"), ElementsAre("w 10-20", "NEGOTIATE_ALLREDUCE 10-20"));
  EXPECT_EQ(Named(events, "w")[0].args.at("outcome"), "failed");
}

TEST(TraceBuilderTest, EventFromBeforeTheTimelineIsDrawnAsFarAsItIsKnown) {
  const std::vector<TimelineEvent> run = NegotiatedRun();
  for (size_t first = 1; first < run.size(); ++first) {
    const auto events = DrawAll({run.begin() + static_cast<ptrdiff_t>(first), run.end()});
    EXPECT_EQ(Overlap(events), "") << first;
    EXPECT_THAT(Spans(events, "collectives"), SizeIs(first <= 3 ? 1 : 0)) << first;
  }
}

TEST(TraceBuilderTest, RanksThatAreReadyAreMarked) {
  const auto events =
      DrawAll({MakeEvent(TimelineKind::kReady, "w", 10, 3), MakeEvent(TimelineKind::kReady, "w", 12, 0)});
  EXPECT_THAT(Spans(events, "w"), ElementsAre("rank 3 is ready 10", "rank 0 is ready 12"));
}

TEST(TraceBuilderTest, DeviceHasARowOfItsOwn) {
  TimelineEvent bucket = MakeEvent(TimelineKind::kDeviceBucket, "w", 10, 1);
  bucket.duration = 30'000;
  TimelineEvent phase = MakeEvent(TimelineKind::kDevicePhase, "PACK", 10);
  phase.duration = 5'500;
  const auto events = DrawAll({bucket, phase});
  EXPECT_THAT(Spans(events, "cuda:1"), ElementsAre("ALLREDUCE 10-40", "PACK 10-15.5"));
}

TEST(TraceBuilderTest, WaitsAndCyclesAreMarked) {
  const auto events =
      DrawAll({MakeEvent(TimelineKind::kCycle, "", 5), MakeEvent(TimelineKind::kWaiting, "w and 3 more", 9)});
  EXPECT_THAT(Spans(events, "collectives"), ElementsAre("CYCLE_START 5", "WAITING 9"));
  EXPECT_EQ(Named(events, "WAITING")[0].args.at("in"), "w and 3 more");
}

TEST(TraceBuilderTest, NamesAreQuoted) {
  const std::string name =
      "a\"b\\c\n\x01"
      "d";
  EXPECT_THAT(Spans(DrawAll({MakeEvent(TimelineKind::kSubmitted, name, 1)}), name), SizeIs(1));
}

TEST(TraceBuilderTest, LongNamesWithTheSameBeginningAreTwoTensors) {
  const std::string begin(TimelineEvent::kNameBytes, 'x');
  const auto events = DrawAll(
      {MakeEvent(TimelineKind::kSubmitted, begin + "1", 1), MakeEvent(TimelineKind::kSubmitted, begin + "2", 2)});
  const auto spans = Named(events, begin);
  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_NE(spans[0].tid, spans[1].tid);
}

TEST(TraceBuilderTest, TooManyTensorsAreCounted) {
  TraceBuilder builder({});
  for (size_t i = 0; i < TraceBuilder::kMostTensors + 3; ++i) {
    builder.Add(MakeEvent(TimelineKind::kReady, absl::StrCat("t", i), 1));
  }
  EXPECT_EQ(builder.left_out(), 3);
  EXPECT_THAT(Named(Drawn(builder), "rank 0 is ready"), SizeIs(TraceBuilder::kMostTensors));
}

TEST(TraceBuilderTest, ProcessIsTheRank) {
  const auto events = DrawAll({});
  const auto names = Named(events, "process_name");
  ASSERT_THAT(names, SizeIs(1));
  EXPECT_EQ(names[0].args.at("name"), "rank 2 (host h)");
  for (const TraceEvent& event : events) EXPECT_EQ(event.pid, 2);
}

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr size_t kPlenty = 1 << 20;

std::string Path(const std::string& name) { return ::testing::TempDir() + name; }

std::string Element(const std::string& name) {
  return absl::StrCat(R"({"ph":"i","pid":0,"tid":1,"ts":1,"name":")", name, "\"}");
}

TEST(TraceFileTest, IsAnArrayWhateverEndItHadBefore) {
  const std::string path = Path("array.json");
  auto file = TraceFile::Create(path, kPlenty);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE((*file)->Write(Element("first"), "").ok());
  size_t count = 1;
  for (const size_t unfinished : {3, 0, 40, 2, 0, 1}) {
    std::string end;
    for (size_t i = 0; i < unfinished; ++i) absl::StrAppend(&end, ",", Element("unfinished"));
    ASSERT_TRUE((*file)->Write("," + Element("more"), end).ok());
    ++count;
    const auto events = ReadTraceFile(path);
    ASSERT_TRUE(events.has_value()) << ReadFile(path).value_or("");
    EXPECT_THAT(*events, SizeIs(count + unfinished));
    EXPECT_THAT(Named(*events, "more"), SizeIs(count - 1));
  }
}

TEST(TraceFileTest, ReplacesWhatIsThere) {
  const std::string path = Path("replaced.json");
  std::ofstream(path) << std::string(5000, 'x');
  auto file = TraceFile::Create(path, kPlenty);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(ReadFile(path).value_or(""), "[\n\n]\n");
}

TEST(TraceFileTest, KnowsWhatFits) {
  auto file = TraceFile::Create(Path("bounded.json"), 4096);
  ASSERT_TRUE(file.ok());
  const size_t room = (*file)->room();
  EXPECT_GT(room, 2000);
  EXPECT_LT(room, 4096 - TraceFile::kReserve);
  ASSERT_TRUE((*file)->Write(std::string(1500, ' '), std::string(200, ' ')).ok());
  EXPECT_EQ((*file)->room(), room - 1500) << "the end will be replaced";
  ASSERT_TRUE((*file)->Write(std::string(2000, ' '), "").ok());
  EXPECT_EQ((*file)->room(), 0);
}

TEST(TraceFileTest, CannotBeCreated) {
  const std::string path = Path("no_such_folder/trace.json");
  const auto file = TraceFile::Create(path, kPlenty);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("No such file"));
}

TEST(TraceFileTest, FullDiskIsAnErrorWithThePath) {
  auto file = TraceFile::Create("/dev/full", kPlenty);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted) << file.status();
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/dev/full"));
}

TEST(TraceFileTest, RankGoesBeforeTheExtension) {
  EXPECT_EQ(PathOfRank("trace.json", 0), "trace.rank0.json");
  EXPECT_EQ(PathOfRank("/a.b/trace", 12), "/a.b/trace.rank12");
  EXPECT_EQ(PathOfRank("a.b/trace.tar.json", 1), "a.b/trace.tar.rank1.json");
  EXPECT_EQ(PathOfRank(".trace", 1), ".trace.rank1");
}

}  // namespace

}  // namespace ronda::testing
