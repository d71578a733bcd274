#include "runtime/launch/config_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST(ConfigFileTest, NothingIsNoEntry) {
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

}  // namespace
}  // namespace ronda
