#include "bench/step/settings.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace ronda::bench {
namespace {

TEST(Sweep, MeasuresEveryCombinationOnce) {
  const Sweep sweep = {.fusion_thresholds = {0, size_t{64} << 20},
                       .wires = {WireFormat::kNone, WireFormat::kFloat16, WireFormat::kFp8E4M3},
                       .cycle_times = {absl::ZeroDuration(), absl::Milliseconds(1)},
                       .backends = {Backend::kShm, Backend::kInProcess},
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
  // Blocks of 256 codes with their scale; each tensor begins a new one.
  EXPECT_EQ(WireBytes(model, WireFormat::kFp8E4M3), 3 * 260);
}

}  // namespace
}  // namespace ronda::bench
