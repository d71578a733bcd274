// SPDX-License-Identifier: Apache-2.0

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/rendezvous/rank_facts.h"
#include "runtime/rendezvous/rendezvous_codec.h"
#include "tests/runtime/rendezvous/claims.h"

namespace ronda {
namespace {

using ::ronda::testing::MemberOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// Returns one rank per entry of `hosts`, all with the same facts.
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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Member MemberWith(const Config& config, RankId rank = 0, const std::string& mpi = "Open MPI v4.1.4") {
  return {.peer = {.rank = rank, .host = "h", .pid = 100 + rank},
          .host_id = "id",
          .version = "1",
          .facts = FactsOf(config, mpi)};
}

TEST(RankFactsTest, RanksWithTheSameSettingsAgree) {
  const std::vector<Member> members = {MemberWith({}, 0), MemberWith({}, 1)};
  EXPECT_TRUE(CheckAgreement(members).ok());
  EXPECT_TRUE(DescribeDifferences(members).empty());
}

TEST(RankFactsTest, AnotherMpiIsNoAgreement) {
  const absl::Status status = CheckAgreement({MemberWith({}, 0), MemberWith({}, 1, "MPICH 4.0.2")});
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 (host h, pid 101) has MPICH 4.0.2"));
}

TEST(RankFactsTest, EverySettingThatDiffersIsDescribed) {
  const std::vector<std::function<void(Config*)>> changes = {
      [](Config* config) { config->backend = "mpi"; },
      [](Config* config) { config->job.mpi.use = MpiEnvironment::Use::kNever; },
      [](Config* config) { config->network.heartbeat = absl::Seconds(2); },
      [](Config* config) { config->network.heartbeat_timeout = absl::InfiniteDuration(); },
      [](Config* config) { config->tunables.fusion_threshold = 1; },
      [](Config* config) { config->tunables.min_bucket_bytes = 1; },
      [](Config* config) { config->tunables.chunk_bytes = 1; },
      [](Config* config) { config->tunables.cycle_time = absl::Milliseconds(1); },
      [](Config* config) { config->tunables.cache_capacity = 1; },
      [](Config* config) { config->tunables.lock_after = 1; },
      [](Config* config) { config->tunables.stall_warning = absl::Seconds(1); },
      [](Config* config) { config->tunables.stall_deadline = absl::Seconds(1); },
      [](Config* config) { config->tunables.autotune = Tunables::Autotune::kOn; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Config changed;
    changes[i](&changed);
    EXPECT_THAT(DescribeDifferences({MemberWith({}), MemberWith(changed, 1)}), SizeIs(1)) << "change " << i;
  }
  Config backend;
  backend.backend = "mpi";
  EXPECT_THAT(DescribeDifferences({MemberWith(backend), MemberWith({}, 1)}),
              ElementsAre("RONDA_BACKEND: rank 1 (host h, pid 101) has unset, but rank 0 has mpi, which holds for the "
                          "job"));
}

TEST(RankFactsTest, SettingsComeBackAsTheyWere) {
  for (const MpiEnvironment::Use use :
       {MpiEnvironment::Use::kAutomatic, MpiEnvironment::Use::kNever, MpiEnvironment::Use::kAlways}) {
    Config config;
    config.backend = "hierarchical";
    config.job.mpi.use = use;
    config.network.heartbeat = absl::Milliseconds(1500);
    config.network.heartbeat_timeout = absl::InfiniteDuration();
    const absl::StatusOr<ConnectionSettings> settings = SettingsOf(MemberWith(config));
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_EQ(settings->backend, "hierarchical");
    EXPECT_EQ(settings->mpi, use);
    EXPECT_EQ(settings->heartbeat, absl::Milliseconds(1500));
    EXPECT_EQ(settings->heartbeat_timeout, absl::InfiniteDuration());
  }
  EXPECT_EQ(SettingsOf(MemberWith({}))->backend, "");
}

TEST(RankFactsTest, SettingsThatNobodyOfOursSendsAreRefused) {
  for (const char* name : {"RONDA_MPI", "RONDA_HEARTBEAT", "RONDA_HEARTBEAT_TIMEOUT"}) {
    for (const char* value : {"x", "-1s", "2"}) {
      Member member = MemberWith({});
      for (Fact& fact : member.facts) {
        if (fact.name == name) fact.value = value;
      }
      EXPECT_EQ(SettingsOf(member).status().code(), absl::StatusCode::kInvalidArgument) << name << "=" << value;
    }
  }
  EXPECT_EQ(SettingsOf({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RankFactsTest, FactsFitTheRendezvousWhateverTheLibrarySays) {
  JoinClaim claim = {.member = MemberWith({}, 0, "\n" + std::string(5000, 'x') + "\x01"), .size = 1};
  EXPECT_TRUE(DecodeClaim(EncodeClaim(claim)).ok());
  claim.member = MemberWith({}, 0, "");
  EXPECT_TRUE(DecodeClaim(EncodeClaim(claim)).ok());
}

}  // namespace

}  // namespace ronda
