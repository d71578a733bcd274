#include "runtime/control/rendezvous/agreement.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/control/rendezvous/claims.h"

namespace ronda {
namespace {

using ::ronda::testing::MemberOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Ranks on a host for each of `hosts`, all with the same facts.
std::vector<Member> Members(const std::vector<std::string>& hosts, const std::vector<Fact>& facts = {}) {
  std::vector<Member> members;
  for (const std::string& host : hosts) {
    members.push_back(MemberOf(static_cast<RankId>(members.size()), host));
    members.back().facts = facts;
  }
  return members;
}

TEST(AgreementTest, EqualRanksAgree) {
  EXPECT_TRUE(CheckAgreement(Members({"a"})).ok());
  EXPECT_TRUE(CheckAgreement(Members({"a", "b", "c"}, {{"byte order", "little"}, {"x", "y"}})).ok());
}

TEST(AgreementTest, OddRankIsNamedWithHostAndRemedy) {
  std::vector<Member> members = Members({"a", "b", "c"});
  members[1].version = "0.9";
  EXPECT_EQ(
      Text(CheckAgreement(members)),
      "version of Ronda: rank 1 (host b, pid 1001) has 0.9, but ranks 0, 2 (on a, c) have 1.0; install one version "
      "on all hosts");
}

TEST(AgreementTest, RankZeroIsTheOddOneIfItIsAlone) {
  std::vector<Member> members = Members({"a", "b", "c"});
  members[0].version = "2.0";
  EXPECT_THAT(Text(CheckAgreement(members)), HasSubstr("rank 0 (host a, pid 1000) has 2.0, but ranks 1, 2 (on b, c)"));
}

TEST(AgreementTest, OfTwoTheOtherIsOdd) {
  std::vector<Member> members = Members({"a", "b"});
  members[1].version = "2.0";
  EXPECT_THAT(Text(CheckAgreement(members)), HasSubstr("rank 1 (host b, pid 1001) has 2.0, but rank 0 (host a"));
}

TEST(AgreementTest, ThreeOpinionsAreAllNamed) {
  std::vector<Member> members = Members({"a", "a", "b", "b", "c"}, {{"MPI library", "Open MPI v4.1.4"}});
  members[2].facts = members[3].facts = {{"MPI library", "Open MPI v4.0.3"}};
  members[4].facts = {};
  const absl::Status status = CheckAgreement(members);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("MPI library: ranks 2, 3 (on b) have Open MPI v4.0.3, rank 4 (host c"),
                                  HasSubstr("has nothing, but ranks 0, 1 (on a) have Open MPI v4.1.4"),
                                  HasSubstr("LD_LIBRARY_PATH")));
}

TEST(AgreementTest, EveryRequirementIsLookedAt) {
  for (const absl::string_view fact :
       {kByteOrderFact, kPointerSizeFact, kWireFormatsFact, kMpiLibraryFact, kNcclVersionFact}) {
    std::vector<Member> members = Members({"a", "b"}, {{std::string(fact), "one"}});
    members[1].facts[0].value = "two";
    EXPECT_THAT(Text(CheckAgreement(members)), HasSubstr(fact));
    EXPECT_THAT(DescribeDifferences(members), IsEmpty()) << "what is required is no setting";
  }
}

TEST(AgreementTest, TextOfALargeJobStaysShort) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 4000; ++i) hosts.push_back(absl::StrCat("node", i));
  std::vector<Member> members = Members(hosts);
  for (size_t i = 0; i < 1500; ++i) members[i].version = "0.9";
  EXPECT_LT(Text(CheckAgreement(members)).size(), 1000u);
}

TEST(AgreementTest, SettingsThatDifferAreListedButNoError) {
  std::vector<Member> members = Members({"a", "b", "c"}, {{"RONDA_LOCK_AFTER", "4"}, {"RONDA_CYCLE_TIME", "0"}});
  members[1].facts[0].value = members[2].facts[0].value = "8";
  EXPECT_TRUE(CheckAgreement(members).ok());
  EXPECT_THAT(DescribeDifferences(members),
              ElementsAre("RONDA_LOCK_AFTER: ranks 1, 2 (on b, c) have 8, but rank 0 has 4, which holds for the job"));
}

TEST(AgreementTest, FactOfSaysWhatAMemberDoesNotMention) {
  const std::vector<Member> members = Members({"a"}, {{"x", "y"}});
  EXPECT_EQ(FactOf(members[0], "x"), "y");
  EXPECT_EQ(FactOf(members[0], "z"), "nothing");
}

}  // namespace
}  // namespace ronda
