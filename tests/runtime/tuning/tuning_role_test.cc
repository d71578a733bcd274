// SPDX-License-Identifier: Apache-2.0

#include "runtime/tuning/tuning_role.h"

#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/base/logging.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr TunedSettings kDefaults = {
    .fusion_threshold = size_t{64} << 20, .min_bucket_bytes = size_t{1} << 20, .chunk_bytes = 0};

// A simulated job around the tuning role. It locks a schedule whenever it may, and unlocks the schedule when the role
// wants a change.
class Job {
 public:
  // Returns the time of a round with the given settings.
  using RoundTime = std::function<absl::Duration(const TunedSettings&)>;

  explicit Job(TuningRole* role) : role_(role) {}

  void Advance(absl::Duration time) { now_ += time; }
  absl::Time now() const { return now_; }
  const TunedSettings& in_force() const { return in_force_; }
  int changes() const { return changes_; }

  // Negotiates some steps.
  void Negotiate() {
    role_->Negotiated(now_);
    if (const auto settings = role_->TakeSettings()) {
      in_force_ = *settings;
      ++changes_;
    }
  }

  // Runs a schedule, and unlocks it when the role wants a change, or after `rounds` rounds.
  void RunSchedule(const RoundTime& time, int rounds) {
    role_->ScheduleBegins(now_);
    for (int round = 0; round < rounds && !role_->wants_change(); ++round) {
      now_ += time(in_force_);
      role_->RoundEnds(now_);
    }
  }

  // Runs the job until the role has ended and its choice is in effect.
  void RunToTheEnd(const RoundTime& time) {
    while (!role_->finished() || role_->wants_change()) {
      RunSchedule(time, 1000);
      Negotiate();
    }
  }

 private:
  TuningRole* const role_;
  absl::Time now_ = absl::UnixEpoch();
  TunedSettings in_force_ = kDefaults;
  int changes_ = 0;
};

absl::Duration BestWithSmallChunks(const TunedSettings& settings) {
  return settings.chunk_bytes == size_t{128} << 10 ? absl::Milliseconds(5) : absl::Milliseconds(10);
}

absl::Duration AlwaysTheSame(const TunedSettings&) { return absl::Milliseconds(10); }

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(TuningRoleTest, PutsTheBestSettingsInForce) {
  TuningRole role({.defaults = kDefaults});
  Job job(&role);
  job.RunToTheEnd(BestWithSmallChunks);
  EXPECT_EQ(job.in_force().chunk_bytes, size_t{128} << 10);
  EXPECT_EQ(job.in_force().fusion_threshold, kDefaults.fusion_threshold);
}

TEST(TuningRoleTest, GoesBackToTheDefaultsIfNothingIsBetter) {
  TuningRole role({.defaults = kDefaults});
  Job job(&role);
  job.RunToTheEnd(AlwaysTheSame);
  EXPECT_EQ(job.in_force(), kDefaults);
  EXPECT_GT(job.changes(), 4) << "others have been tried";
}

TEST(TuningRoleTest, EndedTunerRequestsNoTrial) {
  TuningRole role({.defaults = kDefaults});
  Job job(&role);
  job.RunToTheEnd(BestWithSmallChunks);
  const int changes = job.changes();
  for (int i = 0; i < 10; ++i) {
    job.RunSchedule(AlwaysTheSame, 100);
    job.Advance(absl::Hours(1));
    job.Negotiate();
  }
  EXPECT_EQ(job.changes(), changes);
}

TEST(TuningRoleTest, RoundsUnderOldSettingsDoNotCount) {
  TuningRole role({.defaults = kDefaults});
  Job job(&role);
  job.RunSchedule(AlwaysTheSame, 1000);
  ASSERT_TRUE(role.wants_change());
  // Another rank delays the unlock, so this rank stays in the schedule for a while. The rounds until the unlock take no
  // time. If the role measured them, the new settings would seem very fast.
  for (int i = 0; i < 100; ++i) role.RoundEnds(job.now());
  job.Negotiate();
  job.RunToTheEnd(AlwaysTheSame);
  EXPECT_EQ(job.in_force(), kDefaults);
}

TEST(TuningRoleTest, SchedulesThatAreLeftEarlyEndInTheDefaults) {
  TuningRole role({.defaults = kDefaults});
  Job job(&role);
  while (!role.finished() || role.wants_change()) {
    job.RunSchedule(BestWithSmallChunks, 2);  // only the warm-up
    job.Negotiate();
  }
  EXPECT_EQ(job.in_force(), kDefaults);
}

TEST(TuningRoleTest, EveryStepThatDiffersFromTheLastIsReportedOnceAndChangesNothing) {
  TuningRole role({.defaults = kDefaults, .unlike_timeout = absl::Seconds(60)});
  Job job(&role);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 60; ++i) {
    job.Negotiate();
    job.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty()) << "the timeout is a minute";
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 600; ++i) {
    job.Negotiate();
    job.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              StartsWith("ronda[0] W autotune has nothing to measure: for 1m no schedule has been locked"));
  EXPECT_EQ(job.changes(), 0);
  job.RunToTheEnd(BestWithSmallChunks);
  EXPECT_EQ(job.in_force().chunk_bytes, size_t{128} << 10) << "it is never too late";
}

TEST(TuningRoleTest, SettingsThatWereTriedAreTakenBackWhenStepsNoLongerRepeat) {
  TuningRole role({.defaults = kDefaults, .unlike_timeout = absl::Seconds(60)});
  Job job(&role);
  while (job.changes() == 0) {
    job.RunSchedule(AlwaysTheSame, 1000);
    job.Negotiate();
  }
  EXPECT_NE(job.in_force(), kDefaults);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) {
    job.Negotiate();
    job.Advance(absl::Seconds(1));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("autotune ends early: for 1m no schedule"));
  EXPECT_TRUE(role.finished());
  EXPECT_EQ(job.in_force(), kDefaults);
}

TEST(TuningRoleTest, LongStepsGetALongerTimeout) {
  TuningRole role({.defaults = kDefaults, .unlike_timeout = absl::Seconds(60), .unlike_timeout_rounds = 40});
  Job job(&role);
  job.RunSchedule([](const TunedSettings&) { return absl::Seconds(30); }, 5);
  for (int i = 0; i < 19; ++i) {
    job.Negotiate();
    job.Advance(absl::Minutes(1));
  }
  EXPECT_FALSE(role.finished());
  job.Advance(absl::Minutes(1));
  job.Negotiate();
  EXPECT_TRUE(role.finished());
}

TEST(TuningRoleTest, TheLogHasARowASampleAndEndsWithTheChoice) {
  const std::string path = ::testing::TempDir() + "/tuning_role.csv";
  TuningRole role({.defaults = kDefaults, .log_path = path});
  ASSERT_TRUE(role.Start().ok());
  Job job(&role);
  job.RunToTheEnd(BestWithSmallChunks);
  const std::vector<std::string> lines = Lines(path);
  ASSERT_GT(lines.size(), 10u);
  EXPECT_THAT(lines[0], StartsWith("rounds,stage,"));
  EXPECT_EQ(lines[1], "13,screening,67108864,1048576,0,0,10000.0,10000.0,10000.0,");
  EXPECT_THAT(lines.back(), HasSubstr(",choice,67108864,1048576,131072,0,,,,chosen"));
  const size_t columns = std::vector<std::string>(absl::StrSplit(lines[0], ',')).size();
  for (const std::string& line : lines) {
    EXPECT_EQ(std::vector<std::string>(absl::StrSplit(line, ',')).size(), columns) << line;
  }
}

TEST(TuningRoleTest, ALogThatCannotBeMadeIsAnErrorThatNamesVariableAndFile) {
  TuningRole role({.defaults = kDefaults, .log_path = "/nonexistent/tuning.csv"});
  EXPECT_THAT(std::string(role.Start().message()),
              HasSubstr("RONDA_AUTOTUNE_LOG: cannot create /nonexistent/tuning.csv"));
}

TEST(TuningRoleTest, TheChoiceIsInTheLogOfTheJob) {
  TuningRole role({.defaults = kDefaults});
  Job job(&role);
  SetLogLevel(LogLevel::kInfo);
  ::testing::internal::CaptureStderr();
  job.RunToTheEnd(BestWithSmallChunks);
  SetLogLevel(LogLevel::kWarning);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("steps the choice is fusion threshold 67108864 bytes"));
}

TuningPoint Defaults(const TuningSpace& space) { return TuningPoint(space.grid().size(), 0); }

TEST(TuningSpaceTest, ItsFirstPointIsTheDefaults) {
  const TunedSettings odd = {
      .fusion_threshold = 12345, .min_bucket_bytes = 77, .chunk_bytes = 4096, .cycle_time = absl::Nanoseconds(1234567)};
  for (const TunedSettings& defaults : {kDefaults, odd}) {
    const TuningSpace space(defaults);
    EXPECT_EQ(space.At(Defaults(space)), defaults);
  }
}

TEST(TuningSpaceTest, EveryDimensionOffersAChoiceAndNoneTwice) {
  const TuningSpace space(kDefaults);
  EXPECT_THAT(space.grid(), Each(Gt(1u)));
  for (size_t d = 0; d < space.grid().size(); ++d) {
    std::set<std::string> seen;
    for (size_t value = 0; value < space.grid()[d]; ++value) {
      TuningPoint point = Defaults(space);
      point[d] = value;
      EXPECT_TRUE(seen.insert(Describe(space.At(point))).second) << Describe(space.At(point));
    }
  }
}

TEST(TuningSpaceTest, OwnDefaultsAreWithinReachOfOtherOnes) {
  const TuningSpace space(
      {.fusion_threshold = 1, .min_bucket_bytes = 1, .chunk_bytes = 1, .cycle_time = absl::Hours(1)});
  std::set<std::string> reached;
  TuningPoint point = Defaults(space);
  for (point[0] = 0; point[0] < space.grid()[0]; ++point[0]) {
    for (point[1] = 0; point[1] < space.grid()[1]; ++point[1]) {
      for (point[2] = 0; point[2] < space.grid()[2]; ++point[2]) {
        for (point[3] = 0; point[3] < space.grid()[3]; ++point[3]) reached.insert(Describe(space.At(point)));
      }
    }
  }
  EXPECT_TRUE(reached.contains(Describe(kDefaults)));
}

TEST(TuningSpaceTest, FusionIsNeverSwitchedOff) {
  const TuningSpace space(kDefaults);
  TuningPoint point = Defaults(space);
  for (point[0] = 0; point[0] < space.grid()[0]; ++point[0]) EXPECT_GT(space.At(point).fusion_threshold, 0u);
}

TEST(TuningSpaceTest, SettingsAreDescribedWithTheirUnits) {
  TunedSettings settings = kDefaults;
  settings.cycle_time = absl::Microseconds(200);
  EXPECT_THAT(Describe(settings), AllOf(HasSubstr("fusion threshold 67108864 bytes"), HasSubstr("own size"),
                                        HasSubstr("cycle time 200us")));
  settings.chunk_bytes = 4096;
  EXPECT_THAT(Describe(settings), HasSubstr("chunks of 4096 bytes"));
}

constexpr TunedSettings kSettings = {
    .fusion_threshold = 4096, .min_bucket_bytes = 1024, .chunk_bytes = 0, .cycle_time = absl::ZeroDuration()};

TEST(TuningLogTest, ARowASampleAndTheChoiceLast) {
  const std::string path = ::testing::TempDir() + "/tuning.csv";
  auto log = TuningLog::Create(path);
  ASSERT_TRUE(log.ok()) << log.status();
  const Autotuner::Measurement measurement = {.point = {0},
                                              .sample = Sample({10, 20, 30, 40, 50}),
                                              .stage = Autotuner::Stage::kDuel,
                                              .decision = Autotuner::Decision::kReplaced};
  EXPECT_TRUE((*log)->AddSample(13, measurement, kSettings).ok());
  EXPECT_TRUE((*log)->AddChoice(26, kSettings).ok());
  EXPECT_EQ(ReadFile(path).value_or(""),
            "rounds,stage,fusion_threshold_bytes,min_bucket_bytes,chunk_bytes,cycle_time_us,"
            "lower_quartile_us,median_us,upper_quartile_us,decision\n"
            "13,duel,4096,1024,0,0,20.0,30.0,40.0,replaced\n"
            "26,choice,4096,1024,0,0,,,,chosen\n")
      << "and all of it is in the file while the log is still open";
}

TEST(TuningLogTest, AFileThatCannotBeMadeIsNamed) {
  const auto log = TuningLog::Create("/nonexistent/tuning.csv");
  ASSERT_FALSE(log.ok());
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("cannot create /nonexistent/tuning.csv"));
}

TEST(TuningLogTest, AFullDiskIsNamedWithTheFile) {
  auto log = TuningLog::Create("/dev/full");
  ASSERT_FALSE(log.ok()) << "the header does not fit";
  EXPECT_THAT(std::string(log.status().message()), HasSubstr("autotuner's log /dev/full"));
}

}  // namespace
}  // namespace ronda
