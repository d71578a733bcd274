// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/environment.h"

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/nearest_name.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(UnknownVariablesTest, AMisspeltNameFindsTheOneThatWasMeant) {
  EXPECT_THAT(DescribeUnknownVariables({"RONDA_FUSION_TRESHOLD=1"}),
              ElementsAre("the environment sets RONDA_FUSION_TRESHOLD, which is no variable of Ronda's and has no "
                          "effect; is it RONDA_FUSION_THRESHOLD?"));
  EXPECT_THAT(DescribeUnknownVariables({"RONDA_RNAK=1", "PATH=/bin", "RONDA_STALL_WARN=", "RONDA_LOGLEVEL=info"}),
              ElementsAre(EndsWith("is it RONDA_RANK?"), EndsWith("is it RONDA_STALL_WARNING?"),
                          EndsWith("is it RONDA_LOG_LEVEL?")));
}

TEST(UnknownVariablesTest, AnotherWordResemblesNothingAndItsValueStaysHidden) {
  EXPECT_THAT(DescribeUnknownVariables({"RONDA_FOO=se=cret"}),
              ElementsAre(AllOf(HasSubstr("sets RONDA_FOO,"), HasSubstr("docs/configuration.md"),
                                Not(HasSubstr("is it")), Not(HasSubstr("cret")))));
}

TEST(UnknownVariablesTest, KnownNamesAndOtherPrefixesAreLeftAlone) {
  std::vector<std::string> variables = {"PATH=/bin", "RONDAS=1", "ronda_rank=1", "RANK=0", ""};
  for (const absl::string_view name : kVariables) variables.push_back(absl::StrCat(name, "=x"));
  EXPECT_THAT(DescribeUnknownVariables(variables), IsEmpty());
}

TEST(NearestNameTest, ABeginningIsNearerThanTwoWrongLetters) {
  const std::vector<absl::string_view> known = {"cache", "cycle", "cycle-time"};
  EXPECT_EQ(NearestName("cycl", known), "cycle");
  EXPECT_EQ(NearestName("cycle-t", known), "cycle-time");
  EXPECT_EQ(NearestName("cahce", known), "cache");
}

TEST(NearestNameTest, MoreWrongLettersThanHalfAreAnotherWord) {
  const std::vector<absl::string_view> known = {"mpi", "rank", "size"};
  EXPECT_EQ(NearestName("mpy", known), "mpi");
  EXPECT_EQ(NearestName("foo", known), "");
  EXPECT_EQ(NearestName("drink", known), "rank");
  EXPECT_EQ(NearestName("--map-by", {"--max-np"}), "");
  EXPECT_EQ(NearestName("--nproc-by-node", {"--nproc-per-node"}), "--nproc-per-node");
  EXPECT_EQ(NearestName("m", known), "");
  EXPECT_EQ(NearestName("", known), "");
}

}  // namespace
}  // namespace ronda
