// SPDX-License-Identifier: Apache-2.0

// Tests that lenet_mnist learns the same parameters on several hosts as on one.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/examples/lenet_mnist/few_digits.h"
#include "tests/examples/lenet_mnist/idx_files.h"
#include "tests/examples/lenet_mnist/parameters.h"
#include "tests/hosts/hosts_suite.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

class LenetHostsTest : public HostsTest {
 protected:
  // Returns a command that trains for `steps` steps with a global batch size of 64, and writes the parameters to
  // `file`.
  std::vector<std::string> Training(const std::string& file, int steps) const {
    return {std::filesystem::absolute("examples/lenet_mnist/lenet_mnist"),
            "--data=" + digits_.path(),
            "--batch-size=64",
            "--lr=0.005",
            "--steps=" + std::to_string(steps),
            "--dump-parameters=" + file};
  }

  lenet::Parameters OnOneHost(int ranks, int steps) const {
    const std::string file = directory_.path() + "/one_host";
    const JobResult result = RunProcesses({.size = ranks, .argv = Training(file, steps)});
    for (const ProcessResult& rank : result.ranks) EXPECT_EQ(rank.exit_code, 0) << rank.output;
    return lenet::ReadParameters(file);
  }

  lenet::Parameters OnTwoHosts(int ranks_on_each, int steps) const {
    const auto hosts = MakeHosts({.count = 2});
    if (hosts == nullptr) return {};
    const std::string file = directory_.path() + "/two_hosts";
    const ProcessResult result = RunAcross(*hosts, RondaJob({ranks_on_each, ranks_on_each}, Training(file, steps)));
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return lenet::ReadParameters(file);
  }

 private:
  const lenet::FewDigits digits_{4000, 10};
  const lenet::TemporaryDirectory directory_;
};

// The results differ only because the ranks sum the gradients in a different order.
TEST_F(LenetHostsTest, FourRanksOnTwoHostsTrainAsFourOnOne) {
  constexpr int kSteps = 20;
  const lenet::Parameters one_host = OnOneHost(4, kSteps);
  EXPECT_LE(lenet::Distance(OnTwoHosts(2, kSteps), one_host), 1e-5 * lenet::Norm(one_host));
  // Training must have changed the parameters, or the comparison above would prove nothing.
  const lenet::Parameters untrained = OnOneHost(1, 0);
  EXPECT_GT(lenet::Distance(one_host, untrained), 0.02 * lenet::Norm(untrained));
}

}  // namespace
}  // namespace ronda::testing
