// SPDX-License-Identifier: Apache-2.0

#include "programs/options/config_file.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/options/option_table.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(ConfigFileTest, MapsScalarsAndListsAreReadWithTheirLines) {
  const auto entries = ParseConfigFile("train.yaml", R"(# A job.
num-proc: 4
params:
  fusion_threshold_mb: 32   # in MiB
  cycle-time-ms: 2.5
hosts: [alpha:2, "beta:2"]
x:
  - NAME
  - 'OTHER=a: b'
deep: {er: {still: yes}}
)");
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(
      *entries,
      ElementsAre(ConfigEntry{"num-proc", {"4"}, 2}, ConfigEntry{"params.fusion-threshold-mb", {"32"}, 4},
                  ConfigEntry{"params.cycle-time-ms", {"2.5"}, 5}, ConfigEntry{"hosts", {"alpha:2", "beta:2"}, 6},
                  ConfigEntry{"x", {"NAME", "OTHER=a: b"}, 8}, ConfigEntry{"deep.er.still", {"yes"}, 10}));
}

TEST(ConfigFileTest, EmptyValueIsNoEntry) {
  for (const char* content :
       {"", "\n", "# only a comment\n", "---\n", "~", "{}", "params:\n", "a: ~\nb: null\nc: []\n"}) {
    const auto entries = ParseConfigFile("f", content);
    ASSERT_TRUE(entries.ok()) << content << ": " << entries.status();
    EXPECT_THAT(*entries, IsEmpty()) << content;
  }
}

TEST(ConfigFileTest, TextWithoutAnAddressIsEmpty) {
  const auto entries = ParseConfigFile("f", absl::string_view());
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(*entries, IsEmpty());
}

TEST(ConfigFileTest, QuotedTextIsAValueEvenWhereItLooksLikeNone) {
  const auto entries = ParseConfigFile("f", "a: ''\nb: 'null'\n");
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_THAT(*entries, ElementsAre(ConfigEntry{"a", {""}, 1}, ConfigEntry{"b", {"null"}, 2}));
}

struct BadFile {
  std::string content;
  std::string error;
};

class BadConfigFileTest : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadConfigFileTest, IsRefusedWithTheLine) {
  const auto entries = ParseConfigFile("f.yaml", GetParam().content);
  EXPECT_EQ(entries.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(entries.status().message()), HasSubstr(GetParam().error));
}

INSTANTIATE_TEST_SUITE_P(All, BadConfigFileTest,
                         ::testing::Values(BadFile{"- a\n- b\n", "f.yaml:1: a file is a map of options"},
                                           BadFile{"words\n", "f.yaml:1: a file is a map of options"},
                                           BadFile{"a: 1\na: 2\n", "f.yaml:2: a is there twice"},
                                           BadFile{"p:\n  a_b: 1\n  a-b: 2\n", "f.yaml:3: p.a-b is there twice"},
                                           BadFile{"a: &x 1\nb: *x\n", "f.yaml:2: b: aliases"},
                                           BadFile{"a: [1, [2]]\n", "f.yaml:1: a takes a list of plain values"},
                                           BadFile{"a: [1, {b: 2}]\n", "f.yaml:1: a takes a list of plain values"},
                                           BadFile{"? [a]\n: 1\n", "f.yaml:1: a key is to be the name of an option"},
                                           BadFile{"a: 1\n---\nb: 2\n", "f.yaml:2: a second document"},
                                           BadFile{"a: {b: {c: {d: {e: 1}}}}\n",
                                                   "f.yaml:1: a.b.c.d....: maps are nested too deep"},
                                           BadFile{"a: 'open\n", "f.yaml:2: "}, BadFile{"a: [1\nb: 2\n", "f.yaml:2: "},
                                           BadFile{"\ta: 1\n", "f.yaml:1: "}, BadFile{"a: \x01\n", "f.yaml:1: "},
                                           BadFile{"a: \xff\xff\n", "f.yaml:1: "}));

const OptionTable& Table() {
  static auto* const draft = new CommandLineDraft(nullptr);
  static const OptionTable table = RondarunOptions(draft);
  return table;
}

// Returns the command-line words that an entry in the file is equivalent to.
std::vector<std::string> Words(const ConfigEntry& entry) {
  const auto given = ConfigOptions(Table(), "f", {entry});
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
  const auto given = ConfigOptions(Table(), "f.yaml", {entry});
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
