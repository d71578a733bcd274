// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/local_sgd.hpp"

#include <vector>

#include "client/ronda.hpp"
#include "gtest/gtest.h"

namespace {

using ronda::training::LocalSgd;
using ronda::training::LocalSgdOptions;

TEST(LocalSgdTest, AveragesEveryFewStepsAndBeforeTheStartInEach) {
  ronda::run_threads(2, [] {
    std::vector<float> w = {0}, b = {0};
    LocalSgdOptions options;
    options.interval = 3;
    options.start_step = 2;
    LocalSgd local({ronda::tensor("w", w), ronda::tensor("b", b)}, options);
    std::vector<int> averaged;
    for (int step = 1; step <= 8; ++step) {
      w[0] += ronda::rank() == 0 ? 1 : 3;
      if (local.step()) averaged.push_back(step);
      if (step == 2) {
        EXPECT_EQ(w[0], 4);
      }
      if (step == 4) {
        EXPECT_EQ(w[0], ronda::rank() == 0 ? 6 : 10);
      }
    }
    EXPECT_EQ(averaged, (std::vector<int>{1, 2, 5, 8}));
    EXPECT_EQ(w[0], 16);
    b[0] = static_cast<float>(ronda::rank());
    local.average();
    EXPECT_EQ(b[0], 0.5f);
  });
}

TEST(LocalSgdTest, RefusesOptionsThatAreOutOfRange) {
  LocalSgdOptions options;
  options.interval = 0;
  EXPECT_THROW(LocalSgd({}, options), ronda::Error);
}

}  // namespace
