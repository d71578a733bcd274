// SPDX-License-Identifier: Apache-2.0

// Tests the mathematics of data-parallel training: with the same batches, the result must not depend on the number of
// ranks.

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/examples/lenet_mnist/idx_files.h"
#include "tests/examples/lenet_mnist/parameters.h"
#include "tests/multiprocess/launcher_harness.h"

namespace lenet {
namespace {

constexpr int kSteps = 20;

// Trains for `steps` steps on batches of 64 digits, which the ranks divide among themselves. `compression` is the value
// of --compression, and `more` has further flags.
Parameters Train(int ranks, int steps, const std::string& compression, const std::vector<std::string>& more = {}) {
  static const FewDigits digits(4000, 10);
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/parameters";
  std::vector<std::string> command = {"-np",
                                      std::to_string(ranks),
                                      "examples/lenet_mnist/lenet_mnist",
                                      "--data=" + digits.path(),
                                      "--batch-size=64",
                                      "--lr=0.005",
                                      "--steps=" + std::to_string(steps),
                                      "--compression=" + compression,
                                      "--dump-parameters=" + file};
  command.insert(command.end(), more.begin(), more.end());
  ronda::LauncherRun run(command);
  EXPECT_EQ(run.Finish(), 0) << run.out() << run.err();
  return ReadParameters(file);
}

// Returns the parameters that one rank learns without compression. All other results are compared with them. All tests
// share one training run.
const Parameters& OneRank(int steps) {
  static std::map<int, Parameters>* const trained = new std::map<int, Parameters>;
  const auto found = trained->find(steps);
  return found != trained->end() ? found->second : (*trained)[steps] = Train(1, steps, "none");
}

// Training must change the parameters, or the comparisons below would prove nothing.
TEST(LenetRanks, TwentyStepsChangeTheParameters) {
  EXPECT_GT(Distance(OneRank(kSteps), OneRank(0)), 0.02 * Norm(OneRank(0)));
}

class LenetRanksTest : public ::testing::TestWithParam<int> {};

// The results differ only because the ranks sum the gradients in a different order.
TEST_P(LenetRanksTest, ParametersAreThoseOfOneRank) {
  const double error = Distance(Train(GetParam(), kSteps, "none"), OneRank(kSteps));
  EXPECT_LE(error, 1e-5 * Norm(OneRank(kSteps)));
}

// A gradient is rounded when it is sent, and the sum, computed in fp32, when it is sent back. Each rounding changes an
// element by at most one unit roundoff (2^-11 in fp16, 2^-8 in bf16). Over many elements, the root mean square of both
// roundings together is 0.5 to 0.6 of the unit roundoff. After a single step, nothing has amplified this error yet.
TEST_P(LenetRanksTest, CompressionRoundsAStepTwice) {
  const double step = Distance(OneRank(1), OneRank(0));
  EXPECT_GT(step, 0);
  for (const auto& [compression, roundoff] : {std::pair("fp16", 0x1p-11), std::pair("bf16", 0x1p-8)}) {
    const double error = Distance(Train(GetParam(), 1, compression), OneRank(1));
    EXPECT_LE(error, 0.8 * roundoff * step) << compression;
    EXPECT_GE(error, 0.2 * roundoff * step) << compression << " is not in use";
  }
}

// Over more steps small differences grow, because some activations end up on the other side of a ReLU's kink. The
// bounds are relative to the norm of the parameters, and several times the measured differences. 20 steps move the
// parameters by 4e-2 of the norm.
TEST_P(LenetRanksTest, CompressedTrainingStaysClose) {
  for (const auto& [compression, bound] : {std::pair("fp16", 1e-3), std::pair("bf16", 4e-3)}) {
    const double error = Distance(Train(GetParam(), kSteps, compression), OneRank(kSteps));
    EXPECT_LE(error, bound * Norm(OneRank(kSteps))) << compression;
  }
}

TEST_P(LenetRanksTest, TrainingTwiceGivesTheSameBits) {
  EXPECT_EQ(Train(GetParam(), kSteps, "none"), Train(GetParam(), kSteps, "none"));
}

// The checkpoint is in the middle of an epoch.
TEST_P(LenetRanksTest, TrainingThatGoesOnFromACheckpointGivesTheSameBits) {
  const TemporaryDirectory directory;
  const std::vector<std::string> checkpoints = {"--checkpoints=" + directory.path()};
  Train(GetParam(), kSteps / 3, "none", checkpoints);
  EXPECT_EQ(Train(GetParam(), kSteps, "none", checkpoints), Train(GetParam(), kSteps, "none"));
}

TEST(LenetRanks, TrainingGoesOnWithAnotherNumberOfRanks) {
  const TemporaryDirectory directory;
  const std::vector<std::string> checkpoints = {"--checkpoints=" + directory.path()};
  Train(2, kSteps / 3, "none", checkpoints);
  const double error = Distance(Train(4, kSteps, "none", checkpoints), OneRank(kSteps));
  EXPECT_LE(error, 1e-5 * Norm(OneRank(kSteps)));
}

INSTANTIATE_TEST_SUITE_P(Ranks, LenetRanksTest, ::testing::Values(2, 4));

}  // namespace
}  // namespace lenet
