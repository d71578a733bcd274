// SPDX-License-Identifier: Apache-2.0

// Tests processes that autotune while they train.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"
#include "tests/multiprocess/rank_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::ExpectRankProgramSucceeds;

constexpr int kMostSteps = 5000;

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool HasEnded(const std::string& log) {
  const std::vector<std::string> lines = Lines(log);
  return !lines.empty() && lines.back().find(",choice,") != std::string::npos;
}

// Averages tensors until rank 0 has chosen its settings. Expects the right averages in every step, whatever settings
// the autotuner tries.
void Train() {
  ronda::init();
  const float own = static_cast<float>(ronda::rank());
  const float mean = static_cast<float>(ronda::size() - 1) / 2;
  std::vector<std::vector<float>> values = {
      {0}, std::vector<float>(3), std::vector<float>(5000), std::vector<float>(70000)};
  std::vector<ronda::Tensor> tensors;
  for (std::size_t i = 0; i < values.size(); ++i) tensors.push_back(ronda::tensor(std::to_string(i), values[i]));
  const std::vector<float>& last = values[0];
  for (int step = 0; step < kMostSteps && last[0] == 0; ++step) {
    const float offset = static_cast<float>(step);
    for (std::vector<float>& value : values) value.assign(value.size(), own + offset);
    values[0][0] = own == 0 && step % 20 == 0 && HasEnded(std::getenv("RONDA_AUTOTUNE_LOG")) ? 1.0f : 0.0f;
    std::vector<ronda::Handle> handles;
    for (const ronda::Tensor& tensor : tensors) handles.push_back(ronda::allreduce_async(tensor));
    for (const ronda::Handle& handle : handles) handle.synchronize();
    for (std::size_t i = 1; i < values.size(); ++i) {
      ASSERT_EQ(std::count(values[i].begin(), values[i].end(), mean + offset),
                static_cast<std::ptrdiff_t>(values[i].size()))
          << "step " << step;
    }
  }
  EXPECT_GT(ronda::statistics().schedules_left, 10u) << "other settings have been tried";
  ronda::shutdown();
}

TEST(AutotuneTest, AJobOfProcessesTriesSettingsAndEndsWithAChoice) {
  const std::string log = ::testing::TempDir() + "/tuning.csv";
  ExpectRankProgramSucceeds(
      "tune", 2,
      {.env = {{"RONDA_AUTOTUNE", "1"}, {"RONDA_AUTOTUNE_LOG", log}, {"RONDA_AUTOTUNE_STEPS_PER_SAMPLE", "4"}}});
  EXPECT_TRUE(HasEnded(log));
  EXPECT_GT(Lines(log).size(), 20u);
}

}  // namespace

std::vector<ronda::testing::RankProgram> ronda::AutotunePrograms() { return {{"tune", Train}}; }
