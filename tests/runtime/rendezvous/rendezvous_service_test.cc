// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rendezvous_service.h"

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/clock.h"
#include "runtime/rendezvous/rendezvous_codec.h"
#include "tests/runtime/rendezvous/claims.h"

namespace ronda {
namespace {

using ::ronda::testing::ClaimOf;
using ::ronda::testing::MemberOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kSecret[] = "open sesame";

// Receives the answer to one call of Join, and fails the test if there is a second answer.
class Answer {
 public:
  RendezvousService::JoinDone Callback() {
    return [this](const absl::StatusOr<v1::JoinResponse>& response) {
      EXPECT_FALSE(response_.has_value()) << "answered twice";
      response_ = response;
    };
  }

  bool given() const { return response_.has_value(); }
  const absl::StatusOr<v1::JoinResponse>& value() const { return response_.value(); }
  std::string text() const { return std::string(response_.value().status().message()); }

 private:
  std::optional<absl::StatusOr<v1::JoinResponse>> response_;
};

void AddFact(const std::string& name, const std::string& value, v1::JoinRequest* request) {
  v1::Fact* const fact = request->add_facts();
  fact->set_name(name);
  fact->set_value(value);
}

class RendezvousServiceTest : public ::testing::Test {
 protected:
  void Start(int size, const std::string& secret, absl::Time deadline = absl::InfiniteFuture()) {
    service_ = std::make_unique<RendezvousService>(
        RendezvousService::Options{.table = {.job_id = "job", .size = size, .coordinator = MemberOf(0)},
                                   .secret = secret,
                                   .deadline = deadline,
                                   .timeout = absl::Seconds(30)});
  }

  std::string NewNonce() { return service_->Challenge(SteadyNow())->nonce(); }

  v1::JoinRequest Request(const JoinClaim& claim, const std::string& secret) {
    v1::JoinRequest request = EncodeClaim(claim);
    request.set_nonce(NewNonce());
    if (!secret.empty()) request.set_proof(JoinProof(secret, request.nonce(), claim));
    return request;
  }

  std::unique_ptr<RendezvousService> service_;
};

// Rank 0 and the ranks that it has accepted fail, because the job has moved on to a later epoch. A rank of the later
// epoch may try again.
TEST_F(RendezvousServiceTest, ARankOfALaterEpochEndsTheRendezvous) {
  Start(3, "");
  Answer waiting, first, second;
  service_->Join(Request(ClaimOf(1, 3), ""), waiting.Callback());
  JoinClaim later = ClaimOf(2, 3);
  later.epoch = 1;
  service_->Join(Request(later, ""), first.Callback());
  service_->Join(Request(later, ""), second.Callback());
  for (const Answer* answer : {&first, &second}) {
    ASSERT_TRUE(answer->given());
    EXPECT_EQ(answer->value().status().code(), absl::StatusCode::kAborted);
  }
  ASSERT_TRUE(waiting.given());
  EXPECT_EQ(waiting.value().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(waiting.text(), AllOf(HasSubstr("epoch 1"), HasSubstr("is in epoch 0")));
  EXPECT_EQ(service_->Await().status().message(), waiting.text());
}

TEST_F(RendezvousServiceTest, AllRanksAreAnsweredWhenTheLastRankJoins) {
  Start(3, kSecret);
  Answer one;
  Answer two;
  service_->Join(Request(ClaimOf(1, 3), kSecret), one.Callback());
  EXPECT_FALSE(one.given());
  service_->Join(Request(ClaimOf(2, 3), kSecret), two.Callback());
  ASSERT_TRUE(one.given() && two.given());
  for (const Answer* answer : {&one, &two}) {
    ASSERT_TRUE(answer->value().ok()) << answer->value().status();
    EXPECT_EQ(answer->value()->job_id(), "job");
    EXPECT_EQ(answer->value()->members_size(), 3);
  }
  const absl::StatusOr<MemberList> member_list = service_->Await();
  ASSERT_TRUE(member_list.ok()) << member_list.status();
  EXPECT_EQ(member_list->members[2].peer.pid, 1002);
}

TEST_F(RendezvousServiceTest, ProofOfAnotherSecretIsRefusedNamingBothParties) {
  Start(2, kSecret);
  Answer answer;
  service_->Join(Request(ClaimOf(1, 2), "guess"), answer.Callback());
  ASSERT_TRUE(answer.given());
  EXPECT_EQ(answer.value().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(answer.text(), AllOf(HasSubstr("rank 1 (host a, pid 1001)"), HasSubstr("rank 0 (host a, pid 1000)"),
                                   HasSubstr("RONDA_JOB_SECRET")));
}

TEST_F(RendezvousServiceTest, MissingProofAndNeedlessProofAreRefused) {
  Start(2, kSecret);
  Answer without;
  service_->Join(Request(ClaimOf(1, 2), ""), without.Callback());
  EXPECT_EQ(without.value().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(without.text(), HasSubstr("has no job secret"));

  Start(2, "");
  Answer needless;
  service_->Join(Request(ClaimOf(1, 2), kSecret), needless.Callback());
  EXPECT_EQ(needless.value().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(needless.text(), HasSubstr("rank 0 (host a, pid 1000) has none"));
}

TEST_F(RendezvousServiceTest, ProofCannotBeReplayed) {
  Start(3, kSecret);
  const v1::JoinRequest request = Request(ClaimOf(1, 3), kSecret);
  Answer first;
  service_->Abandon(*service_->Join(request, first.Callback()));
  Answer replay;
  service_->Join(request, replay.Callback());
  EXPECT_EQ(replay.value().status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(RendezvousServiceTest, InventedNonceIsRefused) {
  Start(2, kSecret);
  v1::JoinRequest request = EncodeClaim(ClaimOf(1, 2));
  request.set_nonce(std::string(kNonceBytes, 'x'));
  request.set_proof(JoinProof(kSecret, request.nonce(), ClaimOf(1, 2)));
  Answer answer;
  service_->Join(request, answer.Callback());
  EXPECT_EQ(answer.value().status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(RendezvousServiceTest, DamagedClaimsAreRefused) {
  const std::vector<std::function<void(v1::JoinRequest*)>> damages = {
      [](v1::JoinRequest* request) { request->clear_member(); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_rank(-1); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_rank(3); },
      [](v1::JoinRequest* request) { request->set_size(-3); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_pid(0); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_pid(int64_t{1} << 40); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_hostname(std::string(256, 'h')); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_hostname("a\x1b[2J"); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_host_id(""); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_version("1\n2"); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_tcp_port(65536); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_tcp_port(-1); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_tcp_port(1); },
      [](v1::JoinRequest* request) { request->mutable_member()->set_tcp_address("10.0.0.1"); },
      [](v1::JoinRequest* request) { request->add_facts()->set_name("no value"); },
      [](v1::JoinRequest* request) { AddFact("a", "b\nc", request); },
      [](v1::JoinRequest* request) { AddFact(std::string(256, 'a'), "b", request); },
      [](v1::JoinRequest* request) {
        for (int i = 0; i < 65; ++i) AddFact("a", "b", request);
      },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    Start(3, "");
    v1::JoinRequest request = Request(ClaimOf(1, 3), "");
    damages[i](&request);
    Answer answer;
    service_->Join(request, answer.Callback());
    ASSERT_TRUE(answer.given()) << "damage " << i;
    EXPECT_EQ(answer.value().status().code(), absl::StatusCode::kInvalidArgument) << "damage " << i;
  }
}

TEST_F(RendezvousServiceTest, AbandonedPlaceIsFreeAgain) {
  Start(3, "");
  Answer gone;
  service_->Abandon(*service_->Join(Request(ClaimOf(1, 3), ""), gone.Callback()));
  EXPECT_EQ(gone.value().status().code(), absl::StatusCode::kCancelled);
  Answer one;
  Answer two;
  service_->Join(Request(ClaimOf(1, 3), ""), one.Callback());
  service_->Join(Request(ClaimOf(2, 3), ""), two.Callback());
  EXPECT_TRUE(one.value().ok());
  EXPECT_TRUE(two.value().ok());
}

TEST_F(RendezvousServiceTest, ARefusedJoinHasNoTicketAndAbandoningAnAnsweredOneChangesNothing) {
  Start(3, "");
  Answer one;
  service_->Join(Request(ClaimOf(1, 3), ""), one.Callback());
  Answer twin;
  EXPECT_EQ(service_->Join(Request(ClaimOf(1, 3), ""), twin.Callback()), std::nullopt);
  Answer two;
  service_->Abandon(*service_->Join(Request(ClaimOf(2, 3), ""), two.Callback()));
  EXPECT_TRUE(one.value().ok()) << "rank 1 is still there";
  EXPECT_TRUE(two.value().ok());
}

TEST_F(RendezvousServiceTest, DeadlineAnswersEverybodyWithTheMissingRanks) {
  Start(4, "", absl::InfinitePast());
  Answer two;
  service_->Join(Request(ClaimOf(2, 4), ""), two.Callback());
  const absl::StatusOr<MemberList> member_list = service_->Await();
  EXPECT_EQ(member_list.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(member_list.status().message()), HasSubstr("ranks 1, 3 of 4 did not join"));
  ASSERT_TRUE(two.given());
  EXPECT_EQ(two.value().status(), member_list.status());

  Answer late;
  service_->Join(Request(ClaimOf(1, 4), ""), late.Callback());
  EXPECT_EQ(late.value().status(), member_list.status()) << "the first failure stays";
}

TEST_F(RendezvousServiceTest, RanksThatDoNotFitTogetherAreAllToldWhoIsOdd) {
  Start(3, kSecret);
  JoinClaim odd = ClaimOf(1, 3);
  odd.member.facts = {{"byte order", "big"}};
  Answer one;
  Answer two;
  service_->Join(Request(odd, kSecret), one.Callback());
  EXPECT_FALSE(one.given()) << "who is the odd one shows when all are there";
  service_->Join(Request(ClaimOf(2, 3), kSecret), two.Callback());
  ASSERT_TRUE(one.given() && two.given());
  EXPECT_EQ(one.value().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(one.text(), HasSubstr("byte order: rank 1 (host a, pid 1001) has big, but ranks 0, 2 (on a) have"));
  EXPECT_EQ(two.text(), one.text());
  EXPECT_EQ(service_->Await().status(), one.value().status());
}

TEST_F(RendezvousServiceTest, AnotherVersionThatProvesOtherFieldsIsNamedAsSuch) {
  Start(2, kSecret);
  JoinClaim old = ClaimOf(1, 2);
  old.member.version = "0.9";
  v1::JoinRequest request = Request(old, kSecret);
  request.set_proof(std::string(kProofBytes, 'x'));
  Answer answer;
  service_->Join(request, answer.Callback());
  EXPECT_EQ(answer.value().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(answer.text(), AllOf(HasSubstr("rank 1 (host a, pid 1001) has 0.9"), HasSubstr("install one version")));
}

TEST_F(RendezvousServiceTest, ChallengeSaysHowLongRankZeroWaits) {
  Start(2, "", absl::FromUnixSeconds(100));
  EXPECT_EQ(service_->Challenge(absl::FromUnixSeconds(90))->wait_ms(), 10000);
  EXPECT_EQ(service_->Challenge(absl::FromUnixSeconds(200))->wait_ms(), 0);
}

TEST_F(RendezvousServiceTest, AwaitReturnsWhenTheLastRankJoinsFromAnotherThread) {
  Start(2, "");
  Answer answer;
  std::thread joiner([&] { service_->Join(Request(ClaimOf(1, 2), ""), answer.Callback()); });
  EXPECT_TRUE(service_->Await().ok());
  joiner.join();
  EXPECT_TRUE(answer.value().ok());
}

// Several ranks, each on its own thread, join, sometimes give up, and join again. In the end, all ranks have the same
// answer, and each Join has exactly one answer.
TEST_F(RendezvousServiceTest, ConcurrentJoinsAndDeparturesEndInOneMembership) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  for (int round = 0; round < 20; ++round) {
    const int size = 2 + static_cast<int>((seed + round) % 7);
    Start(size, kSecret);
    std::vector<std::thread> ranks;
    std::vector<std::vector<std::unique_ptr<Answer>>> answers(size);
    for (RankId rank = 1; rank < size; ++rank) {
      ranks.emplace_back([&, rank] {
        std::mt19937 random(seed + static_cast<unsigned>(1000 * round + rank));
        do {
          answers[rank].push_back(std::make_unique<Answer>());
          const auto ticket = service_->Join(Request(ClaimOf(rank, size), kSecret), answers[rank].back()->Callback());
          if (random() % 3 != 0) break;
          if (ticket.has_value()) service_->Abandon(*ticket);
        } while (answers[rank].back()->given() && !answers[rank].back()->value().ok());
      });
    }
    ASSERT_TRUE(service_->Await().ok());
    for (std::thread& rank : ranks) rank.join();
    for (RankId rank = 1; rank < size; ++rank) {
      ASSERT_TRUE(answers[rank].back()->value().ok()) << answers[rank].back()->value().status();
    }
  }
}

TEST(RendezvousCodecTest, MembershipSurvivesTheWire) {
  MemberList member_list{.job_id = "job", .members = {MemberOf(0), MemberOf(1, "b")}};
  member_list.members[1].tcp_address = "fd00::1";
  member_list.members[1].tcp_port = 4712;
  member_list.members[0].facts = {{"RONDA_BACKEND", "mpi"}};
  JoinClaim claim = ClaimOf(1, 2);
  claim.member = MemberOf(1, "b");
  const absl::StatusOr<MemberList> decoded = DecodeMemberList(EncodeMemberList(member_list), claim);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->job_id, "job");
  EXPECT_EQ(decoded->members[1].peer.host, "b");
  EXPECT_EQ(decoded->members[1].host_id, "b-id");
  EXPECT_EQ(decoded->members[0].tcp_port, 0);
  EXPECT_EQ(decoded->members[1].tcp_address, "fd00::1");
  EXPECT_EQ(decoded->members[1].tcp_port, 4712);
  EXPECT_EQ(decoded->members[0].facts, member_list.members[0].facts);
}

TEST(RendezvousCodecTest, ClaimSurvivesTheWire) {
  JoinClaim claim = ClaimOf(1, 2);
  claim.member.tcp_address = "10.0.0.1";
  claim.member.tcp_port = 65535;
  claim.member.facts = {{"byte order", "little"}, {"NCCL version", "none"}};
  const absl::StatusOr<JoinClaim> decoded = DecodeClaim(EncodeClaim(claim));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->size, 2);
  EXPECT_EQ(decoded->member.tcp_address, "10.0.0.1");
  EXPECT_EQ(decoded->member.tcp_port, 65535);
  EXPECT_EQ(decoded->member.facts, claim.member.facts);
}

TEST(RendezvousCodecTest, DamagedMembershipIsRefused) {
  const std::vector<std::function<void(v1::JoinResponse*)>> damages = {
      [](v1::JoinResponse* response) { response->set_job_id("../../etc/passwd"); },
      [](v1::JoinResponse* response) { response->set_job_id(""); },
      [](v1::JoinResponse* response) { response->mutable_members()->RemoveLast(); },
      [](v1::JoinResponse* response) { *response->add_members() = response->members(1); },
      [](v1::JoinResponse* response) { response->mutable_members()->SwapElements(0, 1); },
      [](v1::JoinResponse* response) { response->mutable_members(1)->set_pid(99); },
      [](v1::JoinResponse* response) { response->mutable_members(0)->set_pid(-1); },
      [](v1::JoinResponse* response) { response->mutable_members(0)->set_tcp_port(70000); },
      [](v1::JoinResponse* response) { response->add_facts(); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    v1::JoinResponse response = EncodeMemberList({.job_id = "job", .members = {MemberOf(0), MemberOf(1)}});
    ASSERT_TRUE(DecodeMemberList(response, ClaimOf(1, 2)).ok());
    damages[i](&response);
    EXPECT_EQ(DecodeMemberList(response, ClaimOf(1, 2)).status().code(), absl::StatusCode::kInvalidArgument)
        << "damage " << i;
  }
}

}  // namespace
}  // namespace ronda
