// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/tree/control_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/net/proof.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

ControlJob JobOf(RankId rank, std::string secret = "open sesame") {
  ControlJob job = {.rank = rank, .tree = {.size = 3, .fan_out = 1}, .job_id = "job", .secret = std::move(secret)};
  for (RankId other = 0; other < 3; ++other) job.peers.push_back({.rank = other, .host = "node", .pid = 100 + other});
  return job;
}

// A parent and a child, and their frames.
struct Conversation {
  explicit Conversation(const ControlJob& parent_job = JobOf(0), const ControlJob& child_job = JobOf(1))
      : parent_job(parent_job), child_job(child_job) {}

  HelloFrame Hello() { return child.Answer(parent.Challenge()).value(); }

  const ControlJob parent_job;
  const ControlJob child_job;
  ControlHandshake parent = ControlHandshake::Create(&parent_job).value();
  ControlHandshake child = ControlHandshake::Create(&child_job).value();
};

TEST(ControlHandshakeTest, BothEndsBelieveEachOther) {
  for (const std::string secret : {"open sesame", ""}) {
    Conversation talk(JobOf(0, secret), JobOf(1, secret));
    const absl::StatusOr<WelcomeFrame> welcome = talk.parent.Welcome(talk.Hello());
    ASSERT_TRUE(welcome.ok()) << welcome.status();
    EXPECT_EQ(talk.child.CheckWelcome(*welcome), absl::OkStatus());
  }
}

TEST(ControlHandshakeTest, AnotherSecretIsRefusedByTheParent) {
  for (const auto& [parent, child] :
       std::vector<std::pair<std::string, std::string>>{{"a", "b"}, {"a", ""}, {"", "b"}}) {
    Conversation talk(JobOf(0, parent), JobOf(1, child));
    const absl::Status refused = talk.parent.Welcome(talk.Hello()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("rank 1 (host node, pid 101) has another job secret than rank 0 (host node, pid 100)"));
  }
}

TEST(ControlHandshakeTest, ParentThatDoesNotKnowTheSecretIsRefusedByTheChild) {
  Conversation talk;
  const HelloFrame hello = talk.Hello();
  for (const WelcomeFrame& forged :
       {WelcomeFrame{}, WelcomeFrame{.proof = hello.proof}, WelcomeFrame{.proof = std::string(kProofBytes, 'x')}}) {
    EXPECT_EQ(talk.child.CheckWelcome(forged).code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST(ControlHandshakeTest, ProofOfAnotherStreamOrRankDoesNotCount) {
  Conversation talk, other;
  EXPECT_EQ(talk.parent.Welcome(other.Hello()).status().code(), absl::StatusCode::kPermissionDenied);
  HelloFrame changed = talk.Hello();
  changed.nonce = other.Hello().nonce;
  EXPECT_EQ(talk.parent.Welcome(changed).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(ControlHandshakeTest, RankThatIsNoChildIsRefused) {
  Conversation talk(JobOf(0), JobOf(2));
  EXPECT_THAT(std::string(talk.parent.Welcome(talk.Hello()).status().message()),
              HasSubstr("rank 2 has come to rank 0, which is not its parent"));
  HelloFrame hello = Conversation().Hello();
  for (const RankId rank : {0, -1, 3, 1 << 30}) {
    hello.rank = rank;
    EXPECT_EQ(talk.parent.Welcome(hello).status().code(), absl::StatusCode::kInvalidArgument) << rank;
  }
}

TEST(ControlHandshakeTest, AnotherJobIsRefused) {
  ControlJob other_id = JobOf(1), other_size = JobOf(1);
  other_id.job_id = "other";
  other_size.tree.size = 2;
  for (const ControlJob& child : {other_id, other_size}) {
    Conversation talk(JobOf(0), child);
    EXPECT_THAT(std::string(talk.parent.Welcome(talk.Hello()).status().message()), HasSubstr("another job"));
  }
}

TEST(ControlHandshakeTest, ShortNoncesAreRefused) {
  Conversation talk;
  EXPECT_EQ(talk.child.Answer({.nonce = "short"}).status().code(), absl::StatusCode::kInvalidArgument);
  HelloFrame hello = talk.Hello();
  hello.nonce.pop_back();
  EXPECT_EQ(talk.parent.Welcome(hello).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ControlHandshakeTest, WelcomeBeforeAChallengeIsRefused) {
  Conversation talk;
  EXPECT_EQ(talk.child.CheckWelcome({.proof = "x"}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ronda
