// SPDX-License-Identifier: Apache-2.0

#include "tests/examples/cuda_mnist/training.h"

#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/examples/lenet_mnist/idx_files.h"
#include "tests/multiprocess/launcher_harness.h"

namespace cuda_mnist {
namespace {

using lenet::Distance;
using lenet::Parameters;

constexpr int kSteps = 8;

struct Program {
  std::string path;
  int ranks = 1;
  std::vector<std::string> environment;
};

// Trains on batches of 32 digits, which the ranks divide among themselves.
Parameters TrainSteps(const Program& program, int steps) {
  static const lenet::FewDigits digits(640, 10);
  const lenet::TemporaryDirectory directory;
  const std::string file = directory.path() + "/parameters";
  ronda::LauncherRun run(
      {"-np", std::to_string(program.ranks), program.path, "--data=" + digits.path(), "--batch-size=32", "--lr=0.005",
       "--steps=" + std::to_string(steps), "--dump-parameters=" + file},
      {.environment = program.environment});
  EXPECT_EQ(run.Finish(), 0) << run.out() << run.err();
  return lenet::ReadParameters(file);
}

}  // namespace

Parameters Train(const std::string& program, int ranks, const std::vector<std::string>& environment) {
  return TrainSteps({program, ranks, environment}, kSteps);
}

void ExpectThoseOfTheCpu(const Parameters& parameters) {
  const Program on_cpus = {kTrainsOnCpus, 1, {}};
  const Parameters expected = TrainSteps(on_cpus, kSteps);
  const double way = Distance(expected, TrainSteps(on_cpus, 0));
  EXPECT_GT(way, 0);
  EXPECT_LE(Distance(parameters, expected), 1e-3 * way);
}

}  // namespace cuda_mnist
