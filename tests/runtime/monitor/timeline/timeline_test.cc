// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/timeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/runtime/monitor/timeline/event_factory.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"
#include "tests/testing/await.h"

namespace ronda::testing {
namespace {

using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Path(const std::string& name) { return ::testing::TempDir() + name; }

// Returns the events of rank 0's file, which must be a valid trace.
std::vector<TraceEvent> Read(const std::string& path) {
  const auto events = ReadTraceFile(PathOfRank(path, 0));
  EXPECT_TRUE(events.has_value());
  return events.value_or(std::vector<TraceEvent>());
}

TEST(TimelineTest, HoldsWhatHappensWhileItIsOn) {
  const std::string path = Path("on.json");
  Timeline timeline;
  timeline.Record(MakeEvent(TimelineKind::kReady, "before", 1));
  ASSERT_TRUE(timeline.Start({.path = path}).ok());
  EXPECT_TRUE(timeline.on());
  timeline.Record(MakeEvent(TimelineKind::kReady, "w", 2));
  timeline.Stop();
  EXPECT_FALSE(timeline.on());
  timeline.Record(MakeEvent(TimelineKind::kReady, "after", 3));
  const auto events = Read(path);
  EXPECT_NE(RowOf(events, "w"), -1);
  EXPECT_EQ(RowOf(events, "before"), -1);
  EXPECT_EQ(RowOf(events, "after"), -1);
}

TEST(TimelineTest, IsATraceWhileItIsWritten) {
  const std::string path = Path("growing.json");
  Timeline timeline;
  ASSERT_TRUE(timeline.Start({.path = path}).ok());
  for (int i = 0; i < 20'000; ++i) {
    timeline.Record(MakeEvent(i % 2 == 0 ? TimelineKind::kSubmitted : TimelineKind::kFailed, "w", i));
    if (i % 1000 != 0) continue;
    // While the timeline's thread writes a batch of events, a reader may see only a part of it. So the test reads again
    // until the file is complete.
    EXPECT_TRUE(Await([&] { return ReadTraceFile(PathOfRank(path, 0)).has_value(); }));
  }
  timeline.Stop();
  EXPECT_THAT(Named(Read(path), "w"), SizeIs(Gt(1)));
}

TEST(TimelineTest, StartsAnewAfterItsEnd) {
  const std::string first = Path("first.json"), second = Path("second.json");
  Timeline timeline;
  ASSERT_TRUE(timeline.Start({.path = first}).ok());
  timeline.Record(MakeEvent(TimelineKind::kReady, "a", 1));
  timeline.Stop();
  ASSERT_TRUE(timeline.Start({.path = second}).ok());
  timeline.Record(MakeEvent(TimelineKind::kReady, "b", 1));
  timeline.Stop();
  timeline.Stop();
  EXPECT_NE(RowOf(Read(first), "a"), -1);
  EXPECT_EQ(RowOf(Read(first), "b"), -1);
  EXPECT_NE(RowOf(Read(second), "b"), -1);
  EXPECT_EQ(RowOf(Read(second), "a"), -1);
}

TEST(TimelineTest, SecondStartIsRefusedAndNamesTheFile) {
  const std::string path = Path("twice.json");
  Timeline timeline;
  ASSERT_TRUE(timeline.Start({.path = path}).ok());
  timeline.Record(MakeEvent(TimelineKind::kReady, "w", 1));
  const absl::Status again = timeline.Start({.path = path});
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.message()), HasSubstr(PathOfRank(path, 0)));
  timeline.Stop();
  EXPECT_NE(RowOf(Read(path), "w"), -1);
}

TEST(TimelineTest, FileThatCannotBeCreatedLeavesItOff) {
  Timeline timeline;
  const absl::Status status = timeline.Start({.path = Path("nowhere/trace.json"), .rank = 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("nowhere/trace.rank3.json"));
  EXPECT_FALSE(timeline.on());
  EXPECT_TRUE(timeline.Start({.path = Path("somewhere.json")}).ok());
}

TEST(TimelineTest, FileIsBoundedAndEndsWithTheCountOfWhatIsMissing) {
  constexpr size_t kMost = 64 << 10;
  const std::string path = Path("bounded_timeline.json");
  Timeline timeline;
  ASSERT_TRUE(timeline.Start({.path = path, .most_bytes = kMost}).ok());
  for (int i = 0; i < 5'000; ++i) timeline.Record(MakeEvent(TimelineKind::kReady, "w", i));
  timeline.Stop();
  std::ifstream file(PathOfRank(path, 0), std::ios::ate);
  EXPECT_LE(static_cast<size_t>(file.tellg()), kMost);
  const auto events = Read(path);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().name, "MISSING_EVENTS");
  EXPECT_NE(RowOf(events, "w"), -1) << "what fits is there";
  uint64_t missing = 0;
  ASSERT_TRUE(absl::SimpleAtoi(events.back().args.at("count"), &missing));
  EXPECT_EQ(Named(events, "rank 0 is ready").size() + missing, 5'000);
}

TEST(TimelineTest, ThreadsMayRecordWhileItIsStartedAndStopped) {
  const std::string path = Path("threads.json");
  Timeline timeline;
  std::atomic<bool> is_over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; !is_over.load(); ++i) timeline.Record(MakeEvent(TimelineKind::kReady, "w", i, t));
    });
  }
  std::thread other([&] {
    while (!is_over.load()) {
      timeline.Start({.path = path}).IgnoreError();  // only one of the two has started it
      timeline.Stop();
    }
  });
  for (int i = 0; i < 20; ++i) {
    timeline.Start({.path = path}).IgnoreError();
    timeline.Stop();
  }
  is_over.store(true);
  other.join();
  for (std::thread& thread : threads) thread.join();
  timeline.Stop();
  EXPECT_FALSE(timeline.on());
  // The last file that the two threads have written is complete. A timeline that starts later must contain only its own
  // events.
  EXPECT_EQ(Named(Read(path), "process_name").size(), 1);
  ASSERT_TRUE(timeline.Start({.path = path}).ok());
  timeline.Record(MakeEvent(TimelineKind::kReady, "afterwards", 0));
  timeline.Stop();
  const auto events = Read(path);
  EXPECT_EQ(Named(events, "rank 0 is ready").size(), 1);
  EXPECT_NE(RowOf(events, "afterwards"), -1);
  EXPECT_EQ(RowOf(events, "w"), -1);
}

}  // namespace
}  // namespace ronda::testing
