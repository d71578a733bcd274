#include "runtime/bootstrap/rank_facts.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/control/rendezvous/agreement.h"
#include "runtime/control/rendezvous/rendezvous_codec.h"

namespace ronda {
namespace {

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
