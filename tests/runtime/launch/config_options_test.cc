#include "runtime/launch/config_options.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The options that an entry becomes, as words of a command line.
std::vector<std::string> Words(const ConfigEntry& entry) {
  const auto given = ConfigOptions("f", {entry});
  EXPECT_TRUE(given.ok()) << given.status();
  if (!given.ok()) return {};
  std::vector<std::string> words;
  for (const GivenOption& one : *given) {
    EXPECT_EQ(one.use.origin, OptionUse::Origin::kFile);
    words.push_back(one.option->value_name.empty() ? one.use.name : absl::StrCat(one.use.name, "=", one.use.value));
  }
  return words;
}

std::string ErrorOf(const ConfigEntry& entry) {
  const auto given = ConfigOptions("f.yaml", {entry});
  EXPECT_EQ(given.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(given.status().message());
}

TEST(ConfigOptionsTest, HorovodsSectionsAreUnderstood) {
  EXPECT_THAT(Words({"params.fusion-threshold-mb", {"32"}, 1}), ElementsAre("--fusion-threshold-mb=32"));
  EXPECT_THAT(Words({"params.cycle-time-ms", {"3.5"}, 1}), ElementsAre("--cycle-time-ms=3.5"));
  EXPECT_THAT(Words({"params.cache-capacity", {"9"}, 1}), ElementsAre("--cache-capacity=9"));
  EXPECT_THAT(Words({"params.hierarchical-allgather", {"true"}, 1}), ElementsAre("--hierarchical-allgather"));
  EXPECT_THAT(Words({"autotune.log-file", {"a.csv"}, 1}), ElementsAre("--autotune-log-file=a.csv"));
  EXPECT_THAT(Words({"autotune.warmup-samples", {"5"}, 1}), ElementsAre("--autotune-warmup-samples=5"));
  EXPECT_THAT(Words({"timeline.filename", {"t.json"}, 1}), ElementsAre("--timeline-filename=t.json"));
  EXPECT_THAT(Words({"timeline.mark-cycles", {"true"}, 1}), ElementsAre("--timeline-mark-cycles"));
  EXPECT_THAT(Words({"stall-check.warning-time-seconds", {"9"}, 1}),
              ElementsAre("--stall-check-warning-time-seconds=9"));
  EXPECT_THAT(Words({"library-options.num-nccl-streams", {"2"}, 1}), ElementsAre("--num-nccl-streams=2"));
  EXPECT_THAT(Words({"library-options.mlsl-bgt-affinity", {"1"}, 1}), ElementsAre("--mlsl-bgt-affinity=1"));
  EXPECT_THAT(Words({"logging.level", {"INFO"}, 1}), ElementsAre("--log-level=INFO"));
  EXPECT_THAT(Words({"logging.with-timestamp", {"on"}, 1}), ElementsAre("--log-with-timestamp"));
  EXPECT_THAT(Words({"controller", {"mpi"}, 1}), ElementsAre("--mpi"));
}

TEST(ConfigOptionsTest, SwitchesAreTurnedEitherWay) {
  EXPECT_THAT(Words({"autotune.enabled", {"true"}, 1}), ElementsAre("--autotune"));
  EXPECT_THAT(Words({"autotune.enabled", {"False"}, 1}), ElementsAre("--no-autotune"));
  EXPECT_THAT(Words({"stall-check.enabled", {"yes"}, 1}), ElementsAre("--stall-check"));
  EXPECT_THAT(Words({"stall-check.enabled", {"no"}, 1}), ElementsAre("--no-stall-check"));
  EXPECT_THAT(Words({"params.hierarchical-allreduce", {"off"}, 1}), ElementsAre("--no-hierarchical-allreduce"));
  EXPECT_THAT(Words({"verbose", {"true"}, 1}), ElementsAre("--verbose"));
  EXPECT_THAT(Words({"verbose", {"false"}, 1}), IsEmpty());
}

TEST(ConfigOptionsTest, AnyOptionCanStandOutsideOfSections) {
  EXPECT_THAT(Words({"num-proc", {"4"}, 1}), ElementsAre("--num-proc=4"));
  EXPECT_THAT(Words({"np", {"4"}, 1}), ElementsAre("-np=4"));
  EXPECT_THAT(Words({"H", {"a:1"}, 1}), ElementsAre("-H=a:1"));
  EXPECT_THAT(Words({"nproc-per-node", {"auto"}, 1}), ElementsAre("--nproc-per-node=auto"));
}

TEST(ConfigOptionsTest, ListsAreJoinedOrRepeated) {
  EXPECT_THAT(Words({"hosts", {"a:1", "b:2"}, 1}), ElementsAre("--hosts=a:1,b:2"));
  EXPECT_THAT(Words({"x", {"A", "B=1,2"}, 1}), ElementsAre("-x=A", "-x=B=1,2"));
  EXPECT_THAT(Words({"mpi-args", {"--mca a b", "c"}, 1}), ElementsAre("--mpi-args=--mca a b", "--mpi-args=c"));
}

TEST(ConfigOptionsTest, ErrorsNameTheLineAndTheKey) {
  EXPECT_THAT(ErrorOf({"params.nope", {"1"}, 7}), StartsWith("f.yaml:7: params.nope: no such option"));
  EXPECT_THAT(ErrorOf({"section.cycle-time-ms", {"1"}, 7}), StartsWith("f.yaml:7: section.cycle-time-ms: no such"));
  EXPECT_EQ(ErrorOf({"verbose", {"maybe"}, 2}), "f.yaml:2: verbose: takes true or false; got \"maybe\"");
  EXPECT_EQ(ErrorOf({"controller", {"jsrun"}, 2}),
            "f.yaml:2: controller: takes mpi, for example controller: mpi; got \"jsrun\"");
  for (const char* key : {"help", "version", "check-build", "config-file"}) {
    EXPECT_EQ(ErrorOf({key, {"true"}, 1}),
              absl::StrCat("f.yaml:1: ", key, ": --", key, " is for the command line only"));
  }
}

}  // namespace
}  // namespace ronda
