// SPDX-License-Identifier: Apache-2.0

// Tests jobs that search for faster settings while they run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/negotiation/recording.h"
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
// The maximum number of steps in a search. A search with samples of 4 steps needs only a tenth of this, including the
// steps that lock the schedule again.
constexpr int kMostSteps = 5000;

Tunables Autotuned(const std::string& log) {
  return {.autotune = Tunables::Autotune::kOn, .autotune_log = log, .autotune_steps_per_sample = 4};
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Returns the tensors of a step, with sizes from one element to a few chunks.
std::vector<std::vector<float>> Gradients(int rank) {
  std::vector<std::vector<float>> gradients;
  for (const size_t size : {1, 7, 1000, 30000}) gradients.emplace_back(size, static_cast<float>(rank + 1));
  return gradients;
}

// Runs a step that sums all tensors at the same time. Returns whether rank 0 has declared it the last step.
bool RunStep(Runtime& runtime, float is_last) {
  std::vector<std::vector<float>> gradients = Gradients(runtime.topology().rank);
  std::vector<float> last = {is_last};
  std::vector<std::shared_ptr<Handle>> handles = {*runtime.Submit(Sum("last", &last))};
  for (size_t i = 0; i < gradients.size(); ++i) {
    handles.push_back(*runtime.Submit(Sum(absl::StrCat("gradient ", i), &gradients[i])));
  }
  for (const auto& handle : handles) EXPECT_TRUE(handle->Wait().ok());
  for (const std::vector<float>& sum : gradients) {
    EXPECT_EQ(std::count(sum.begin(), sum.end(), kRanks * (kRanks + 1) / 2), static_cast<ptrdiff_t>(sum.size()));
  }
  return last[0] != 0;
}

bool HasEnded(const std::string& log) {
  const std::vector<std::string> lines = Lines(log);
  return !lines.empty() && absl::StrContains(lines.back(), ",choice,");
}

// Runs steps until shortly after rank 0 has chosen the settings.
void Train(Runtime& runtime, const std::string& log) {
  const bool is_first = runtime.topology().rank == kCoordinatorRank;
  for (int step = 0; step < kMostSteps; ++step) {
    // The delay makes the other ranks idle by the time rank 0 unlocks the schedule. Idle ranks may receive the new
    // settings before they have unlocked the schedule.
    for (int i = 0; !is_first && i < 20; ++i) std::this_thread::yield();
    const bool may_be_last = is_first && step % 20 == 0;
    if (RunStep(runtime, may_be_last && HasEnded(log) ? 1.0f : 0.0f)) break;
    if (::testing::Test::HasFailure()) return;
  }
  for (int step = 0; step < 20; ++step) RunStep(runtime, 0);
  EXPECT_TRUE(HasEnded(log));
  EXPECT_GT(runtime.statistics().schedules_begun, 10u) << "other settings have been tried";
}

class AutotuneTest : public ::testing::TestWithParam<Backend> {};

TEST_P(AutotuneTest, ChangesSettingsBetweenStepsAndNoResultAndReplays) {
  const std::string log = absl::StrCat(::testing::TempDir(), "/tuning", Name(GetParam()), ".csv");
  Tunables tunables = Autotuned(log);
  tunables.negotiation_log = absl::StrCat(::testing::TempDir(), "/tuned_negotiation", Name(GetParam()), ".log");
  RunRanks(ConnectRanks(GetParam(), {.size = kRanks}), [&](RankId rank, Transport transport) {
    const auto runtime = Runtime::Create({.tunables = tunables}, {.rank = rank, .size = kRanks}, std::move(transport));
    Train(*runtime, log);
    EXPECT_TRUE(runtime->Shutdown().ok());
  });
  const auto recording = ReadRecording(tunables.negotiation_log);
  ASSERT_TRUE(recording.ok()) << recording.status();
  EXPECT_TRUE(Replay(*recording).ok()) << Replay(*recording);
}

INSTANTIATE_TEST_SUITE_P(All, AutotuneTest, ::testing::Values(Backend::kInProcess, Backend::kShmSeparately),
                         [](const auto& info) { return Name(info.param); });

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
