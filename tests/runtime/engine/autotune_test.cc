// Jobs that look for faster settings while they run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/negotiation/recording.h"
#include "runtime/negotiation/recording_file.h"
#include "tests/runtime/engine/job.h"
#include "tests/testing/backends.h"
#include "tests/testing/run_ranks.h"

namespace ronda {
namespace {

using ::ronda::testing::Backend;
using ::ronda::testing::CarryOut;
using ::ronda::testing::ConnectRanks;
using ::ronda::testing::RunRanks;
using ::ronda::testing::RunRuntimes;
using ::ronda::testing::Sum;
using ::testing::HasSubstr;

constexpr int kRanks = 3;
// More than a search of samples of 4 steps takes, with the steps that lock the schedule again after each change.
constexpr int kSteps = 900;

Tunables Autotuned(const std::string& log) {
  return {.autotune = Tunables::Autotune::kOn, .autotune_log = log, .autotune_steps_per_sample = 4};
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// A step's tensors, of a few elements to a few chunks.
std::vector<std::vector<float>> Gradients(int rank) {
  std::vector<std::vector<float>> gradients;
  for (const size_t size : {1, 7, 1000, 30000}) gradients.emplace_back(size, static_cast<float>(rank + 1));
  return gradients;
}

// One step: all of its tensors are summed, in flight together.
void Step(Runtime& runtime, float expected) {
  std::vector<std::vector<float>> gradients = Gradients(runtime.topology().rank);
  std::vector<std::shared_ptr<Handle>> handles;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const auto handle = runtime.Submit(Sum(absl::StrCat("gradient ", i), &gradients[i]));
    ASSERT_TRUE(handle.ok()) << handle.status();
    handles.push_back(*handle);
  }
  for (const auto& handle : handles) ASSERT_TRUE(handle->Wait().ok());
  for (const std::vector<float>& sum : gradients) {
    ASSERT_TRUE(std::all_of(sum.begin(), sum.end(), [&](float element) { return element == expected; }));
  }
}

void Train(Runtime& runtime) {
  for (int step = 0; step < kSteps; ++step) {
    // The others are idle when rank 0 leaves the schedule, and may hear of its new settings before they have left too.
    if (runtime.topology().rank != kCoordinatorRank) {
      for (int i = 0; i < 20; ++i) std::this_thread::yield();
    }
    Step(runtime, kRanks * (kRanks + 1) / 2);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

void ExpectSearchToTheEnd(const std::string& log) {
  const std::vector<std::string> lines = Lines(log);
  ASSERT_GT(lines.size(), 20u);
  EXPECT_THAT(lines.back(), HasSubstr(",choice,"));
}

class AutotuneTest : public ::testing::TestWithParam<Backend> {};

TEST_P(AutotuneTest, ChangesSettingsBetweenStepsAndNoResult) {
  const std::string log = absl::StrCat(::testing::TempDir(), "/tuning", Name(GetParam()), ".csv");
  RunRanks(ConnectRanks(GetParam(), {.size = kRanks}), [&](RankId rank, Transport transport) {
    const auto runtime =
        Runtime::Create({.tunables = Autotuned(log)}, {.rank = rank, .size = kRanks}, std::move(transport));
    Train(*runtime);
    EXPECT_GT(runtime->statistics().schedules_begun, 10u);
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
  ExpectSearchToTheEnd(log);
}

INSTANTIATE_TEST_SUITE_P(All, AutotuneTest, ::testing::Values(Backend::kInProcess, Backend::kShmSeparately),
                         [](const auto& info) { return Name(info.param); });

TEST(AutotunedJobTest, ChangesReplay) {
  const std::string log = absl::StrCat(::testing::TempDir(), "/tuning.csv");
  Tunables tunables = Autotuned(log);
  tunables.negotiation_log = absl::StrCat(::testing::TempDir(), "/tuned_negotiation.log");
  RunRuntimes(kRanks, {.tunables = tunables}, Train);
  ExpectSearchToTheEnd(log);
  const auto recording = ReadRecording(tunables.negotiation_log);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_TRUE(Replay(*recording).ok()) << Replay(*recording);
}

TEST(AutotunedJobTest, AJobWhoseStepsDifferIsToldSoAndGoesOn) {
  testing::FakeClock clock;
  ::testing::internal::CaptureStderr();
  RunRuntimes(1, {.tunables = Autotuned(""), .clock = &clock}, [&](Runtime& runtime) {
    for (int step = 0; step < 100; ++step) {
      std::vector<float> data(4, 1.0f);
      EXPECT_TRUE(CarryOut(runtime, Sum(absl::StrCat("tensor ", step), &data)).ok());
      clock.Advance(absl::Seconds(1));
    }
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("autotune has nothing to measure"));
}

TEST(AutotunedJobTest, ALogThatCannotBeWrittenFailsTheJobAtItsBeginning) {
  RunRanks(2, [](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({.tunables = Autotuned("/nonexistent/tuning.csv")}, {.rank = rank, .size = 2},
                                         std::move(transport));
    const absl::Status status = CarryOut(*runtime, testing::Barrier("b"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("RONDA_AUTOTUNE_LOG: cannot create /nonexistent/tuning.csv"));
  });
}

}  // namespace
}  // namespace ronda
