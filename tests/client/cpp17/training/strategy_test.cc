// SPDX-License-Identifier: Apache-2.0

#include "client/ronda/training/strategy.hpp"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "client/ronda.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ronda::training::load_strategy;
using ronda::training::read_strategy;
using ronda::training::Strategy;
using ronda::training::try_read_strategy;
using ::testing::HasSubstr;

std::string error_of(const std::string& text) {
  const ronda::Result<Strategy> strategy = try_read_strategy(text, "job.yaml");
  if (strategy.ok()) return "no error";
  EXPECT_EQ(strategy.status().code(), RONDA_ERROR_INVALID_ARGUMENT);
  return strategy.status().message();
}

TEST(StrategyTest, AnEmptyFileHasTheDefaults) {
  for (const std::string text : {"", "# nothing\n\n", "---\n", "compression:\n"}) {
    const Strategy strategy = read_strategy(text);
    EXPECT_EQ(strategy.optimizer.op, ronda::Op::Average);
    EXPECT_EQ(strategy.optimizer.backward_passes_per_step, 1);
    EXPECT_FALSE(strategy.job.fusion_threshold);
    EXPECT_FALSE(strategy.loss_scaler || strategy.local_sgd || strategy.power_sgd || strategy.top_k);
  }
}

TEST(StrategyTest, HasTheOptionsOfTheJobAndTheOptimizer) {
  const Strategy strategy = read_strategy(R"(
fusion_threshold: 1048576   # bytes
cache-capacity: 100
cycle_time_ms: 2.5
stall_warning_s: 30
op: sum
compression: "fp8_e4m3"
prescale: 0.5
postscale: 2e-1
error_feedback: yes
gradient_predivide_factor: 4
group_count: 3
backward_passes_per_step: 2
)");
  EXPECT_EQ(strategy.job.fusion_threshold, 1048576);
  EXPECT_EQ(strategy.job.cache_capacity, 100);
  EXPECT_DOUBLE_EQ(strategy.job.cycle_time->count(), 0.0025);
  EXPECT_EQ(strategy.job.stall_warning->count(), 30);
  EXPECT_EQ(strategy.optimizer.op, ronda::Op::Sum);
  EXPECT_EQ(strategy.optimizer.compression, ronda::Compression::fp8_e4m3);
  EXPECT_EQ(strategy.optimizer.prescale, 0.5);
  EXPECT_EQ(strategy.optimizer.postscale, 0.2);
  EXPECT_TRUE(strategy.optimizer.error_feedback);
  EXPECT_EQ(strategy.optimizer.gradient_predivide_factor, 4);
  EXPECT_EQ(strategy.optimizer.group_count, 3);
  EXPECT_EQ(strategy.optimizer.backward_passes_per_step, 2);
}

TEST(StrategyTest, UnderstandsPaddlesNames) {
  const Strategy strategy = read_strategy(R"(
fuse_all_reduce_ops: true
fuse_grad_size_in_MB: 16
fp16_allreduce: true
find_unused_parameters: false
gradient_merge: true
gradient_merge_configs:
  k_steps: 4
  avg: true
gradient_scale_configs:
  scale_strategy: 'avg'
amp: true
amp_configs:
    init_loss_scaling: 32768
    incr_every_n_steps: 1000
    incr_ratio: 3
    decr_ratio: 0.25
dgc: true
dgc_configs:
  rampup_begin_step: 10
  rampup_step: 20
  sparsity: [0.75, 0.9375, 0.984375]
)");
  EXPECT_EQ(strategy.job.fusion_threshold, 16 << 20);
  EXPECT_EQ(strategy.optimizer.compression, ronda::Compression::fp16);
  EXPECT_EQ(strategy.optimizer.backward_passes_per_step, 4);
  EXPECT_EQ(strategy.optimizer.prescale, 0.25);
  EXPECT_EQ(strategy.optimizer.op, ronda::Op::Average);
  EXPECT_TRUE(strategy.optimizer.skip_on_overflow);
  ASSERT_TRUE(strategy.loss_scaler);
  EXPECT_EQ(strategy.loss_scaler->initial, 32768);
  EXPECT_EQ(strategy.loss_scaler->growth_interval, 1000);
  EXPECT_EQ(strategy.loss_scaler->growth, 3);
  EXPECT_EQ(strategy.loss_scaler->backoff, 0.25);
  ASSERT_TRUE(strategy.top_k);
  EXPECT_EQ(strategy.top_k->start_step, 10);
  EXPECT_EQ(strategy.top_k->warm_up_steps, 20);
  EXPECT_EQ(strategy.top_k->initial_density, 0.25);
  EXPECT_EQ(strategy.top_k->density, 1.0 / 64);
}

TEST(StrategyTest, APartIsUsedWhereItsSwitchIsOn) {
  const std::string configs = "localsgd_configs:\n  k_steps: 16\n  begin_step: 100\n";
  EXPECT_FALSE(read_strategy(configs).local_sgd);
  EXPECT_FALSE(read_strategy("localsgd: false\n" + configs).local_sgd);
  const Strategy strategy = read_strategy(configs + "localsgd: true\n");
  ASSERT_TRUE(strategy.local_sgd);
  EXPECT_EQ(strategy.local_sgd->interval, 16);
  EXPECT_EQ(strategy.local_sgd->start_step, 100);
  EXPECT_EQ(read_strategy("gradient_merge_configs:\n  k_steps: 4\n").optimizer.backward_passes_per_step, 1);
  EXPECT_EQ(read_strategy("power_sgd: true\npower_sgd_configs:\n  rank: 7\n").power_sgd->rank, 7);
  EXPECT_THAT(error_of("dgc: true\npower_sgd: true\n"), HasSubstr("power_sgd and dgc exclude each other"));
}

TEST(StrategyTest, AnUnknownSettingNamesTheNearest) {
  EXPECT_EQ(error_of("op: sum\ncompresion: fp16\n"), "job.yaml:2: compresion is no setting; is it compression?");
  EXPECT_EQ(error_of("gradient_merge_configs:\n  k_step: 4\n"),
            "job.yaml:2: gradient_merge_configs.k_step is no setting; is it gradient_merge_configs.k_steps?");
  EXPECT_EQ(error_of("zzzzzz: 1\n"), "job.yaml:1: zzzzzz is no setting; docs/training.md lists them");
}

TEST(StrategyTest, AValueOfAnotherKindIsRefused) {
  EXPECT_EQ(error_of("prescale: much"), "job.yaml:1: prescale takes a number; got 'much'");
  EXPECT_EQ(error_of("group_count: 1.5"), "job.yaml:1: group_count takes a whole number; got '1.5'");
  EXPECT_EQ(error_of("group_count: 99999999999"), "job.yaml:1: group_count takes a whole number; got '99999999999'");
  EXPECT_EQ(error_of("dgc_configs:\n  min_elements: -1"),
            "job.yaml:2: dgc_configs.min_elements takes a whole number; got '-1'");
  EXPECT_EQ(error_of("dgc: maybe"), "job.yaml:1: dgc takes one of true, false, yes, no, on, off; got 'maybe'");
  EXPECT_EQ(error_of("op: min"), "job.yaml:1: op takes one of average, avg, sum, adasum; got 'min'");
  EXPECT_EQ(error_of("dgc_configs:\n  sparsity: [0.5, ]"),
            "job.yaml:2: dgc_configs.sparsity takes a number, or numbers as in [0.75, 0.99]; got '[0.5, ]'");
  EXPECT_EQ(error_of("gradient_merge: true\ngradient_merge_configs:\n  k_steps: 0"),
            "job.yaml: gradient_merge_configs.k_steps is 0: it must be at least 1");
}

TEST(StrategyTest, TheRestOfYamlIsRefusedWithItsLine) {
  EXPECT_THAT(error_of("op: sum\nop: sum\n"), HasSubstr("job.yaml:2: op is there twice"));
  EXPECT_THAT(error_of("just words\n"), HasSubstr("job.yaml:1: a line is a setting and its value"));
  EXPECT_THAT(error_of("op:sum\n"), HasSubstr("job.yaml:1: a line is a setting and its value"));
  EXPECT_THAT(error_of("  op: sum\n"), HasSubstr("job.yaml:1: op is indented, but is in no map"));
  EXPECT_THAT(error_of("dgc_configs:\n  momentum: 0\n   clip_norm: 1\n"),
              HasSubstr("job.yaml:3: clip_norm is indented"));
  EXPECT_THAT(error_of("dgc: true\n  momentum: 0\n"), HasSubstr("job.yaml:2: momentum is indented, but is in no map"));
  EXPECT_THAT(error_of("dgc_configs:\n\tmomentum: 0\n"), HasSubstr("job.yaml:2: a tab"));
  EXPECT_THAT(error_of("dgc_configs: {momentum: 0}\n"), HasSubstr("job.yaml:1: dgc_configs: only plain values"));
  EXPECT_THAT(error_of("op: \"sum\n"), HasSubstr("job.yaml:1: op: the quote does not end"));
}

TEST(StrategyTest, IsLoadedFromAFile) {
  const std::string path = ::testing::TempDir() + "strategy_test.yaml";
  std::ofstream(path) << "error_feedback: true\r\ncompression: bf16\r\n";
  EXPECT_EQ(load_strategy(path).optimizer.compression, ronda::Compression::bf16);
  std::remove(path.c_str());
  EXPECT_THAT(ronda::training::try_load_strategy(path).status().message(), HasSubstr(path + ": cannot be read"));
}

// From a file to gradients that are reduced as the file says.
TEST(StrategyTest, ItsPartsAreReadyForUse) {
  struct Sgd {
    void step() {}
  };
  const Strategy strategy =
      read_strategy("op: sum\nprescale: 0.5\ngradient_merge: on\ngradient_merge_configs:\n  k_steps: 2");
  ronda::run_threads(
      2,
      [&] {
        Sgd sgd;
        std::vector<float> gradient = {8};
        ronda::DistributedOptimizer optimizer(sgd, {ronda::tensor("w", gradient)}, strategy.optimizer);
        optimizer.gradient_ready("w");
        optimizer.gradient_ready("w");
        optimizer.step();
        EXPECT_EQ(gradient[0], 4);  // 2 ranks * 8 * 0.5 / 2 passes
      },
      strategy.job);
}

}  // namespace
