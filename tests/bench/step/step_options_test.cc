#include "bench/step/step_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Parse(const std::vector<std::string>& words, StepOptions* options) {
  return StepFlags(options).Parse(words);
}

TEST(StepOptions, ListsSweepTheirDimension) {
  StepOptions options;
  const absl::Status status =
      Parse({"--fusion", "0,1MiB", "--wire=fp16,none", "--cycle-time", "0,1ms", "--backend", "all", "--lock", "off",
             "--compute", "0,100ms", "--compute-kind", "burn", "--steps", "3", "--warm-up", "0", "--rounds", "2"},
            &options);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(options.sweep.fusion_thresholds, ElementsAre(0, 1 << 20));
  EXPECT_THAT(options.sweep.wires, ElementsAre(WireFormat::kFloat16, WireFormat::kNone));
  EXPECT_THAT(options.sweep.cycle_times, ElementsAre(absl::ZeroDuration(), absl::Milliseconds(1)));
  EXPECT_THAT(options.sweep.backends, ElementsAre(Backend::kShm, Backend::kInProcess));
  EXPECT_THAT(options.sweep.lockings, ElementsAre(ScheduleLocking::kOff));
  EXPECT_THAT(options.computes, ElementsAre(absl::ZeroDuration(), absl::Milliseconds(100)));
  EXPECT_EQ(options.compute_kind, ComputeKind::kBurn);
  EXPECT_EQ(options.steps, 3);
  EXPECT_EQ(options.warm_up, 0);
  EXPECT_EQ(options.rounds, 2);
}

TEST(StepOptions, AllWiresAreFive) {
  StepOptions options;
  ASSERT_TRUE(Parse({"--wire", "all"}, &options).ok());
  EXPECT_EQ(options.sweep.wires.size(), 5u);
}

TEST(StepOptions, NonsenseIsAnsweredWithWhatIsRight) {
  StepOptions options;
  EXPECT_THAT(std::string(Parse({"--wire", "fp4"}, &options).message()),
              HasSubstr("--wire takes all, or a list of none, fp16, bf16, fp8_e4m3, fp8_e5m2; got \"fp4\""));
  EXPECT_THAT(std::string(Parse({"--lock", "maybe"}, &options).message()), HasSubstr("--lock takes"));
  EXPECT_THAT(std::string(Parse({"--steps", "0"}, &options).message()), HasSubstr("--steps takes a whole number"));
  EXPECT_THAT(std::string(Parse({"--preset", "alexnet"}, &options).message()), HasSubstr("lenet, resnet50"));
}

TEST(StepOptions, ModelsArePresetsOrAFile) {
  StepOptions options;
  ASSERT_TRUE(Parse({"--preset", "lenet,gpt2"}, &options).ok());
  absl::StatusOr<std::vector<ModelShapes>> models = ModelsOf(options);
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ(models->at(1).name, "gpt2");

  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/shapes.txt";
  std::ofstream(path) << "w 2 3\n";
  ASSERT_TRUE(Parse({"--shapes", path}, &options).ok());
  models = ModelsOf(options);
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 1u);
  EXPECT_EQ(models->at(0).count(), 6);
}

}  // namespace
}  // namespace ronda::bench
