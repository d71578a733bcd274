// SPDX-License-Identifier: Apache-2.0

// Tests timelines of jobs whose ranks are processes: timelines that the environment or the program begins, and
// timelines of killed ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ronda.hpp"
#include "runtime/base/files.h"
#include "tests/multiprocess/rank_programs.h"
#include "tests/runtime/monitor/timeline/trace_reader.h"
#include "tests/testing/process_world.h"

namespace ronda {
namespace {

using ::testing::Each;
using testing::ExpectRankProgramSucceeds;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobResult;
using testing::Named;
using ::testing::Not;
using testing::ProcessResult;
using testing::ReadTrace;
using testing::ReadTraceFile;
using testing::RunRankProgram;
using ::testing::SizeIs;
using testing::TraceEvent;

constexpr int kSteps = 20;

std::string Path(const std::string& name) { return ::testing::TempDir() + name; }

std::string FileOf(const std::string& name, int rank) { return absl::StrCat(Path(name), ".rank", rank, ".json"); }

std::vector<TraceEvent> Read(const std::string& name, int rank) {
  const auto events = ReadTraceFile(FileOf(name, rank));
  EXPECT_TRUE(events.has_value()) << "rank " << rank;
  return events.value_or(std::vector<TraceEvent>());
}

// Reads the timeline of a killed rank. The file may end in the middle of an event, if the rank was killed while the
// kernel was copying events.
std::vector<TraceEvent> ReadOfKilled(const std::string& name, int rank) {
  if (auto events = ReadTraceFile(FileOf(name, rank)); events.has_value()) return *std::move(events);
  const std::string text = ReadFile(FileOf(name, rank)).value_or("");
  const std::string whole_events = text.substr(0, text.rfind(",\n"));
  return ReadTrace(whole_events + "\n]\n").value_or(std::vector<TraceEvent>());
}

// -- Programs of ranks --

Status Step() {
  float value = 1;
  return try_allreduce(tensor("gradient", &value), {Op::Sum});
}

void Trains() {
  init();
  for (int i = 0; i < kSteps; ++i) EXPECT_EQ(Step().message(), "");
  shutdown();
}

// Rank 1 is killed after a given number of steps, wherever the thread that writes the timeline then is.
void Dies() {
  init();
  const int steps = std::atoi(std::getenv("STEPS"));
  for (int i = 0; i < steps; ++i) EXPECT_EQ(Step().message(), "");
  if (rank() == 1) raise(SIGKILL);
  while (Step().ok()) {
  }
  EXPECT_EQ(try_shutdown().code(), RONDA_ERROR_PEER_FAILED);
}

void StartsAndStops() {
  EXPECT_EQ(try_start_timeline("x.json").code(), RONDA_ERROR_NOT_INITIALIZED);
  init();
  EXPECT_EQ(Step().message(), "");
  const Status nowhere = try_start_timeline("/no/such/folder/x.json");
  EXPECT_EQ(nowhere.code(), RONDA_ERROR_INVALID_ARGUMENT);
  EXPECT_THAT(nowhere.message(), HasSubstr(absl::StrCat("/no/such/folder/x.rank", rank(), ".json: No such file")));
  EXPECT_EQ(ronda_start_timeline(nullptr), RONDA_ERROR_INVALID_ARGUMENT);
  start_timeline(Path("api.json"));
  EXPECT_EQ(try_start_timeline(Path("api.json")).code(), RONDA_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < kSteps; ++i) EXPECT_EQ(Step().message(), "");
  stop_timeline();
  stop_timeline();
  EXPECT_EQ(Step().message(), "");
  shutdown();
}

void CannotWrite() {
  const Status status = try_init();
  std::printf("%s\n", status.message().c_str());
  EXPECT_EQ(status.ok(), false);
}

// -- The tests --

TEST(Timeline, EnvironmentBeginsOneOnEveryRank) {
  ExpectRankProgramSucceeds("trains", 2, {.env = {{"RONDA_TIMELINE", Path("trains.json")}}});
  for (int rank = 0; rank < 2; ++rank) {
    const auto events = Read("trains", rank);
    EXPECT_THAT(Named(events, "gradient"), SizeIs(kSteps));
    EXPECT_THAT(events, Each(Field(&TraceEvent::pid, rank)));
  }
}

// All processes of a host use the same clock in their timelines.
TEST(Timeline, RanksOfAHostHaveTheSameTime) {
  ExpectRankProgramSucceeds("trains", 2, {.env = {{"RONDA_TIMELINE", Path("clocks.json")}}});
  const auto first = Named(Read("clocks", 0), "gradient"), second = Named(Read("clocks", 1), "gradient");
  ASSERT_EQ(first.size(), second.size());
  // No rank completes an operation before all ranks have begun it.
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_LE(first[i].ts, second[i].end());
    EXPECT_LE(second[i].ts, first[i].end());
  }
}

TEST(Timeline, FilesAreTracesAfterARankWasKilled) {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::minstd_rand random(seed);
  for (int round = 0; round < 5; ++round) {
    const std::string steps = absl::StrCat(random() % 5000 + 1);
    const JobResult job = RunRankProgram("dies", 2, {.env = {{"RONDA_TIMELINE", Path("dies.json")}, {"STEPS", steps}}});
    EXPECT_EQ(job.ranks[0].exit_code, 0) << job.ranks[0].output;
    EXPECT_EQ(job.ranks[1].signal, SIGKILL);
    EXPECT_THAT(Read("dies", 0), Not(IsEmpty())) << steps << " steps";
    EXPECT_THAT(ReadOfKilled("dies", 1), Not(IsEmpty())) << steps << " steps";
  }
}

TEST(Timeline, ProgramsStartAndStopIt) {
  ExpectRankProgramSucceeds("starts_and_stops", 2);
  for (int rank = 0; rank < 2; ++rank) EXPECT_THAT(Named(Read("api", rank), "gradient"), SizeIs(kSteps));
}

TEST(Timeline, JobThatCannotWriteSaysWhichFileOnAllRanks) {
  const JobResult job = RunRankProgram("cannot_write", 2, {.env = {{"RONDA_TIMELINE", "/no/such/folder/t.json"}}});
  for (const ProcessResult& rank : job.ranks) {
    EXPECT_EQ(rank.exit_code, 0) << rank.output;
    EXPECT_THAT(rank.output, HasSubstr("RONDA_TIMELINE: cannot create /no/such/folder/t.rank"));
  }
}

}  // namespace

std::vector<testing::RankProgram> TimelinePrograms() {
  return {{"trains", Trains}, {"dies", Dies}, {"starts_and_stops", StartsAndStops}, {"cannot_write", CannotWrite}};
}

}  // namespace ronda
