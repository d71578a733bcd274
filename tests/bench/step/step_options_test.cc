// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/step/step_options.h"

namespace ronda::bench {
namespace {

TEST(Sweep, MeasuresEveryCombinationOnce) {
  const Sweep sweep = {.fusion_thresholds = {0, size_t{64} << 20},
                       .wires = {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E4M3},
                       .cycle_times = {absl::ZeroDuration(), absl::Milliseconds(1)},
                       .backends = {kShm, kInProcess},
                       .lockings = {ScheduleLocking::kOn, ScheduleLocking::kOff}};
  std::set<std::string> names;
  for (const Setting& setting : AllSettings(sweep)) names.insert(Name(setting));
  EXPECT_EQ(AllSettings(sweep).size(), 2u * 3 * 2 * 2 * 2);
  EXPECT_EQ(names.size(), AllSettings(sweep).size());
}

TEST(Sweep, OfDefaultsIsOneSetting) {
  const std::vector<Setting> settings = AllSettings({});
  ASSERT_EQ(settings.size(), 1u);
  EXPECT_EQ(Name(settings[0]), "ronda fusion=64 MiB wire=none cycle=0 shm lock=on");
}

TEST(Sweep, TheLastDimensionVariesFastest) {
  const std::vector<Setting> settings = AllSettings(
      {.wires = {WireFormat::kNone, WireFormat::kBfloat16}, .lockings = {ScheduleLocking::kOn, ScheduleLocking::kOff}});
  EXPECT_EQ(Name(settings[1]), "ronda fusion=64 MiB wire=none cycle=0 shm lock=off");
  EXPECT_EQ(Name(settings[2]), "ronda fusion=64 MiB wire=bf16 cycle=0 shm lock=on");
}

TEST(WireBytes, AreThoseOfTheFormat) {
  const ModelShapes model = {.parameters = {{.name = "a", .shape = {256, 2}}, {.name = "b", .shape = {3}}}};
  EXPECT_EQ(WireBytes(model, WireFormat::kNone), 515 * 4);
  EXPECT_EQ(WireBytes(model, WireFormat::kFloat16), 515 * 2);
  EXPECT_EQ(WireBytes(model, WireFormat::kBfloat16), 515 * 2);
  // A block has 256 one-byte codes and a 4-byte scale. Each tensor begins a new block.
  EXPECT_EQ(WireBytes(model, WireFormat::kFp8E4M3), 3 * 260);
}

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
  EXPECT_THAT(options.sweep.backends, ElementsAre(kShm, kInProcess));
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
