// SPDX-License-Identifier: Apache-2.0

// Tests that LeNet keeps training while ranks join and die. The test itself is the launcher.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tests/testing/elastic_launcher.h"

namespace lenet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

double AccuracyIn(const std::string& output) {
  const std::string words = "test accuracy ";
  const std::size_t at = output.find(words);
  return at == std::string::npos ? 0 : std::stod(output.substr(at + words.size()));
}

// A fourth rank joins. Then the oldest rank, rank 0, is killed.
TEST(LenetElastic, LearnsWhileARankComesAndTheFirstOneDies) {
  ronda::testing::ElasticLauncher launcher({"examples/lenet_mnist/lenet_elastic", "--epochs=4", "--batch-size=32"});
  for (int i = 0; i < 3; ++i) launcher.Start();
  launcher.Run([&](int size) {
    if (size == 4) {
      launcher.Kill(0, SIGKILL);
    } else if (launcher.results().size() == 3) {
      launcher.Start();
    }
  });
  EXPECT_THAT(launcher.sizes(), ElementsAre(3, 4, 3));
  const std::string output = launcher.results()[1].output;
  EXPECT_GE(AccuracyIn(output), 0.97) << output;
  EXPECT_THAT(output, HasSubstr("3 ranks"));
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(launcher.results()[i].status, 0);
}

TEST(LenetElastic, WithoutAnElasticLauncherItTrainsAsOneRank) {
  ronda::testing::CommandedProcess alone({"examples/lenet_mnist/lenet_elastic", "--epochs=1"}, {}, -1);
  EXPECT_GE(AccuracyIn(alone.Rest()), 0.5);
  EXPECT_EQ(alone.Wait(), 0);
}

}  // namespace
}  // namespace lenet
