// SPDX-License-Identifier: Apache-2.0

// Tests DistributedOptimizer, and the broadcasts at the start of training, in jobs whose ranks are processes.
#include <cstdint>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/world_programs.h"
#include "tests/testing/process_world.h"

namespace {

using ronda::testing::ExpectRankProgramSucceeds;
using ::testing::Each;
using ::testing::ElementsAre;

// Plain gradient descent with momentum.
struct Sgd {
  void step() {
    for (std::size_t i = 0; i < weights->size(); ++i) {
      momentum[i] = 0.9f * momentum[i] + (*gradients)[i];
      (*weights)[i] -= rate * momentum[i];
    }
    ++steps;
  }
  std::vector<ronda::Tensor> state() {
    return {ronda::tensor("momentum", momentum), ronda::tensor("rate", &rate), ronda::tensor("steps", &steps)};
  }

  std::vector<float>* weights;
  std::vector<float>* gradients;
  std::vector<float> momentum = std::vector<float>(weights->size());
  float rate = 0.5f;
  std::int64_t steps = 0;
};

void AveragesGradients() {
  ronda::init();
  std::vector<float> weights(3, 1), gradients(3);
  Sgd sgd{&weights, &gradients};
  ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("w", gradients)});
  float expected = 1, momentum = 0;
  for (int step = 0; step < 4; ++step) {
    gradients.assign(3, static_cast<float>(ronda::rank()));
    optimizer.gradient_ready("w");
    optimizer.step();
    momentum = 0.9f * momentum + (ronda::size() - 1) / 2.0f;
    expected -= 0.5f * momentum;
    EXPECT_THAT(weights, Each(::testing::FloatEq(expected)));
  }
  ronda::shutdown();
}

// An optimizer that counts the gradients that it gets.
struct Recorder {
  void step() { ++steps; }
  int steps = 0;
};

void MissingGradientsCountAsZeros() {
  ronda::init();
  std::vector<float> used(2, 6), unused(2, 6);
  Recorder recorder;
  ronda::DistributedOptimizerOptions options;
  options.op = ronda::Op::Sum;
  ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("used", used), ronda::tensor("unused", unused)},
                                        options);
  optimizer.gradient_ready("used");
  // The gradient "unused" belongs to a branch of the model that only rank 0 has used.
  if (ronda::rank() == 0) optimizer.gradient_ready("unused");
  optimizer.step();
  EXPECT_THAT(used, Each(6 * ronda::size()));
  EXPECT_THAT(unused, Each(6));
  ronda::shutdown();
}

void AccumulatesOverPasses() {
  ronda::init();
  std::vector<float> gradients(2, 0);
  Recorder recorder;
  ronda::DistributedOptimizerOptions options;
  options.backward_passes_per_step = 3;
  options.prescale = 1.0 / 3;
  ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("w", gradients)}, options);
  for (int pass = 0; pass < 3; ++pass) {
    for (float& gradient : gradients) gradient += 3.0f * (ronda::rank() + pass);
    optimizer.gradient_ready("w");
  }
  optimizer.step();
  // Each rank adds 3 * (rank + pass) in each pass. The result is the average over the passes and the ranks.
  EXPECT_THAT(gradients, Each(::testing::FloatEq(3 * ((ronda::size() - 1) / 2.0f + 1))));
  ronda::shutdown();
}

void GradientReadyDoesNotWait() {
  ronda::init();
  std::vector<float> early(2, 1), late(2, 1);
  float go = 0;
  Recorder recorder;
  ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("early", early), ronda::tensor("late", late)});
  // The other ranks announce no gradient before rank 0 has returned from gradient_ready(). If gradient_ready() waited
  // for the other ranks, no rank could continue.
  if (ronda::rank() == 0) optimizer.gradient_ready("early");
  ronda::broadcast(ronda::tensor("go", &go), 0);
  if (ronda::rank() != 0) optimizer.gradient_ready("early");
  optimizer.gradient_ready("late");
  optimizer.step();
  EXPECT_EQ(recorder.steps, 1);
  ronda::shutdown();
}

void CompressesGradients() {
  ronda::init();
  std::vector<float> gradients = {1 + 1.0f / 4096, 3};
  Recorder recorder;
  ronda::DistributedOptimizerOptions options;
  options.compression = ronda::Compression::fp16;
  ronda::DistributedOptimizer optimizer(recorder, {ronda::tensor("w", gradients)}, options);
  optimizer.gradient_ready("w");
  optimizer.step();
  EXPECT_THAT(gradients, ElementsAre(1, 3));
  ronda::shutdown();
}

void BroadcastsParametersAndState() {
  ronda::init();
  const int root = ronda::size() - 1;
  const float mine = static_cast<float>(ronda::rank());
  std::vector<float> weights(100, mine), bias(3, -mine), gradients(100);
  ronda::broadcast_parameters({ronda::tensor("weights", weights), ronda::tensor("bias", bias)}, root);
  EXPECT_THAT(weights, Each(root));
  EXPECT_THAT(bias, Each(-root));
  Sgd sgd{&weights, &gradients, std::vector<float>(100, mine), mine, ronda::rank()};
  ronda::broadcast_optimizer_state(sgd, root);
  EXPECT_THAT(sgd.momentum, Each(root));
  EXPECT_EQ(sgd.rate, root);
  EXPECT_EQ(sgd.steps, root);
  ronda::shutdown();
}

const std::vector<ronda::testing::RankProgram> kPrograms = {
    {"AveragesGradients", AveragesGradients},         {"MissingGradientsCountAsZeros", MissingGradientsCountAsZeros},
    {"AccumulatesOverPasses", AccumulatesOverPasses}, {"GradientReadyDoesNotWait", GradientReadyDoesNotWait},
    {"CompressesGradients", CompressesGradients},     {"BroadcastsParametersAndState", BroadcastsParametersAndState},
};

TEST(OptimizerWorldTest, AveragesGradients) { ExpectRankProgramSucceeds("AveragesGradients", 2); }

TEST(OptimizerWorldTest, MissingGradientsCountAsZeros) { ExpectRankProgramSucceeds("MissingGradientsCountAsZeros", 3); }

TEST(OptimizerWorldTest, AccumulatesOverPasses) { ExpectRankProgramSucceeds("AccumulatesOverPasses", 2); }

TEST(OptimizerWorldTest, GradientReadyDoesNotWait) { ExpectRankProgramSucceeds("GradientReadyDoesNotWait", 3); }

TEST(OptimizerWorldTest, CompressesGradients) { ExpectRankProgramSucceeds("CompressesGradients", 2); }

TEST(OptimizerWorldTest, BroadcastsParametersAndState) { ExpectRankProgramSucceeds("BroadcastsParametersAndState", 3); }

}  // namespace

namespace ronda::testing {

const std::vector<RankProgram>& OptimizerPrograms() { return kPrograms; }

}  // namespace ronda::testing
