// SPDX-License-Identifier: Apache-2.0

// Tests the timelines that jobs write: each rank's file has the engine's events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/monitor/timeline/trace.h"
#include "tests/runtime/engine/job.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"

namespace ronda::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::SizeIs;

// A number of steps after which the job has locked a schedule and carried it out.
constexpr int kSteps = 12;

std::string Path(const std::string& name) { return ::testing::TempDir() + name; }

// Reads a rank's file, which must be a trace in which any two overlapping spans are nested.
std::vector<TraceEvent> Read(const std::string& path, RankId rank) {
  const auto events = ReadTraceFile(PathOfRank(path, rank));
  EXPECT_TRUE(events.has_value()) << "rank " << rank;
  if (!events.has_value()) return {};
  EXPECT_EQ(Overlap(*events), "");
  return *events;
}

// Returns the names of the spans in the row of a tensor.
std::vector<std::string> NamesIn(const std::vector<TraceEvent>& events, const std::string& row) {
  std::vector<std::string> names;
  for (const TraceEvent& event : events) {
    if (event.tid == RowOf(events, row) && event.ph != "M") names.push_back(event.name);
  }
  return names;
}

// Runs `body` on each rank after all ranks have begun their timelines.
void RunTimed(int size, const Runtime::Options& options, const std::string& path,
              const std::function<void(Runtime& runtime)>& body) {
  RunRuntimes(size, options, [&](Runtime& runtime) {
    ASSERT_TRUE(runtime.StartTimeline(path).ok());
    Succeed(runtime, Barrier("begun"));
    body(runtime);
  });
}
void RunTimed(int size, const std::string& path, const std::function<void(Runtime& runtime)>& body) {
  RunTimed(size, {}, path, body);
}

void Reduce(Runtime& runtime, const std::vector<std::string>& names) {
  std::vector<std::vector<float>> data(names.size(), std::vector<float>(100, 1.0f));
  std::vector<Submission> submissions;
  for (size_t i = 0; i < names.size(); ++i) submissions.push_back(Sum(names[i], &data[i]));
  const auto handles = SubmitAll(runtime, submissions);
  ASSERT_TRUE(handles.ok()) << handles.status();
  for (const auto& handle : *handles) EXPECT_EQ(handle->Wait(), absl::OkStatus());
}

TEST(EngineTimelineTest, NegotiatedTensorsAreDrawnOnEveryRank) {
  const std::string path = Path("negotiated.json");
  RunTimed(3, path, [](Runtime& runtime) { Reduce(runtime, {"a", "b"}); });
  for (RankId rank = 0; rank < 3; ++rank) {
    const auto events = Read(path, rank);
    for (const char* const name : {"a", "b"}) {
      const auto names = NamesIn(events, name);
      EXPECT_THAT(names, IsSupersetOf({name, "NEGOTIATE_ALLREDUCE", "QUEUE", "ALLREDUCE"}));
      EXPECT_THAT(names, Not(Contains("LOCKED")));
    }
    EXPECT_THAT(Named(events, "process_name"), SizeIs(1));
  }
}

TEST(EngineTimelineTest, CoordinatorRankMarksWhichRankIsReadyAlsoThroughTheCache) {
  const std::string path = Path("ready.json");
  RunTimed(3, {.tunables = {.lock_after = 0}}, path, [](Runtime& runtime) {
    for (int step = 0; step < 3; ++step) Reduce(runtime, {"a"});
  });
  const auto events = Read(path, 0);
  for (RankId rank = 0; rank < 3; ++rank) {
    const std::string mark = absl::StrCat("rank ", rank, " is ready");
    const auto names = NamesIn(events, "a");
    EXPECT_EQ(std::count(names.begin(), names.end(), mark), 3) << mark;
    if (rank > 0) {
      EXPECT_THAT(Named(Read(path, rank), "rank 0 is ready"), IsEmpty());
    }
  }
}

TEST(EngineTimelineTest, LockedScheduleNegotiatesNothing) {
  const std::string path = Path("locked.json");
  RunTimed(2, path, [](Runtime& runtime) {
    for (int step = 0; step < kSteps; ++step) Reduce(runtime, {"a", "b"});
    EXPECT_GT(runtime.statistics().buckets_scheduled, 0u);
  });
  for (RankId rank = 0; rank < 2; ++rank) {
    const auto events = Read(path, rank);
    EXPECT_THAT(NamesIn(events, "a"), Contains("LOCKED"));
    EXPECT_THAT(Named(events, "a"), SizeIs(kSteps));
    EXPECT_THAT(Named(events, "b"), SizeIs(kSteps));
    EXPECT_THAT(Named(events, "CYCLE_START"), Not(IsEmpty()));
    for (const TraceEvent& tensor : Named(events, "a")) EXPECT_EQ(tensor.args.at("outcome"), "done");
  }
}

TEST(EngineTimelineTest, ScheduleThatIsLeftIsDrawnThroughout) {
  const std::string path = Path("left.json");
  RunTimed(2, path, [](Runtime& runtime) {
    for (int round = 0; round < 2; ++round) {
      for (int step = 0; step < kSteps; ++step) Reduce(runtime, {"a", "b"});
      Reduce(runtime, {"other"});
    }
  });
  for (RankId rank = 0; rank < 2; ++rank) {
    const auto events = Read(path, rank);
    EXPECT_THAT(Named(events, "a"), SizeIs(2 * kSteps));
    EXPECT_THAT(NamesIn(events, "other"), Contains("NEGOTIATE_ALLREDUCE"));
  }
}

TEST(EngineTimelineTest, TensorThatFailsEndsWithThat) {
  const std::string path = Path("failed.json");
  RunTimed(2, path, [](Runtime& runtime) {
    std::vector<float> data(runtime.topology().rank == 0 ? 4 : 5);
    EXPECT_EQ(CarryOut(runtime, Sum("odd", &data)).code(), absl::StatusCode::kFailedPrecondition);
  });
  const auto odd = Named(Read(path, 1), "odd");
  ASSERT_THAT(odd, SizeIs(1));
  EXPECT_EQ(odd[0].args.at("outcome"), "failed");
}

TEST(EngineTimelineTest, CollectivesSayHowMuchTheyMove) {
  const std::string path = Path("bytes.json");
  RunTimed(2, path, [](Runtime& runtime) { Reduce(runtime, {"a"}); });
  const auto events = Read(path, 0);
  for (const TraceEvent& event : Named(events, "ALLREDUCE")) {
    EXPECT_EQ(event.args.at("bytes"), "400");
    EXPECT_EQ(event.args.at("dtype"), "float32");
  }
  EXPECT_THAT(Named(events, "ALLREDUCE"), SizeIs(2)) << "one in the tensor's row, one in that of collectives";
}

TEST(EngineTimelineTest, StartsAndStopsWhileTheJobGoesOn) {
  const std::string path = Path("restarted.json");
  RunRuntimes(2, [&](Runtime& runtime) {
    for (int round = 0; round < 5; ++round) {
      ASSERT_TRUE(runtime.StartTimeline(path).ok());
      EXPECT_EQ(runtime.StartTimeline(path).code(), absl::StatusCode::kFailedPrecondition);
      for (int step = 0; step < kSteps; ++step) Reduce(runtime, {"a", "b"});
      runtime.StopTimeline();
      const auto events = Read(path, runtime.topology().rank);
      EXPECT_THAT(Named(events, "a"), SizeIs(kSteps));
      Reduce(runtime, {"a", "b"});
    }
  });
}

TEST(EngineTimelineTest, IsBounded) {
  const std::string path = Path("bounded_job.json");
  constexpr size_t kMost = 32 << 10;
  RunTimed(2, {.timeline_bytes = kMost}, path, [](Runtime& runtime) {
    for (int step = 0; step < 200; ++step) Reduce(runtime, {"a", "b"});
  });
  const auto events = Read(path, 1);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().name, "MISSING_EVENTS");
}

TEST(EngineTimelineTest, FileThatCannotBeCreatedIsNamedAndTheJobGoesOn) {
  RunRuntimes(2, [](Runtime& runtime) {
    const absl::Status status = runtime.StartTimeline("/no/such/folder/t.json");
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("/no/such/folder/t.rank", runtime.topology().rank, ".json")));
    Reduce(runtime, {"a"});
  });
}

}  // namespace
}  // namespace ronda::testing
