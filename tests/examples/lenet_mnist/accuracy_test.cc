// SPDX-License-Identifier: Apache-2.0

// Tests what the example promises: two ranks learn to read digits. This test is separate because it takes longer than
// the example's other tests.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/multiprocess/launcher_harness.h"

namespace lenet {
namespace {

// Trains for fewer epochs than the default ten, so that the test is quick.
TEST(LenetAccuracy, TwoRanksLearnToReadDigits) {
  ronda::LauncherRun run({"-np", "2", "examples/lenet_mnist/lenet_mnist", "--epochs=4"});
  ASSERT_EQ(run.Finish(), 0) << run.err();
  const std::string label = "test accuracy ";
  const std::size_t found = run.out().find(label);
  ASSERT_NE(found, std::string::npos) << run.out();
  EXPECT_GE(std::atof(run.out().c_str() + found + label.size()), 0.97) << run.out();
}

}  // namespace
}  // namespace lenet
