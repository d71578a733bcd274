// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rendezvous_codec.h"

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "runtime/rendezvous/rendezvous_service.h"
#include "tests/runtime/rendezvous/claims.h"

namespace ronda {
namespace {

using ::ronda::testing::ClaimOf;

const std::string kNonce(kNonceBytes, 'n');

TEST(JoinProofTest, IsHmacSha256OfLengthPrefixedFields) {
  // printf '24:ronda.v1.Rendezvous.Join32:nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn12:1,2,0,1001,01:a4:a-id3:1.00:0:' |
  //   openssl dgst -sha256 -hmac secret
  EXPECT_EQ(absl::BytesToHexString(JoinProof("secret", kNonce, ClaimOf(1, 2))),
            "75f19fc534f5d4e1c182f8412de9e51976baa7ec3657b242f4bf249445acb7a3");
}

TEST(JoinProofTest, HoldsForWhatItWasMadeOf) {
  const std::string proof = JoinProof("secret", kNonce, ClaimOf(1, 2));
  EXPECT_TRUE(IsJoinProof(proof, "secret", kNonce, ClaimOf(1, 2)));
}

TEST(JoinProofTest, FailsForAnyOtherSecretNonceOrField) {
  const std::string proof = JoinProof("secret", kNonce, ClaimOf(1, 2));
  EXPECT_FALSE(IsJoinProof(proof, "Secret", kNonce, ClaimOf(1, 2)));
  EXPECT_FALSE(IsJoinProof(proof, "secret", std::string(kNonceBytes, 'm'), ClaimOf(1, 2)));
  const std::vector<std::function<void(JoinClaim*)>> changes = {
      [](JoinClaim* claim) { claim->size = 3; },
      [](JoinClaim* claim) { claim->epoch = 1; },
      [](JoinClaim* claim) { claim->member.peer.rank = 0; },
      [](JoinClaim* claim) { claim->member.peer.pid = 1; },
      [](JoinClaim* claim) { claim->member.peer.host = "b"; },
      [](JoinClaim* claim) { claim->member.host_id = "b"; },
      [](JoinClaim* claim) { claim->member.version = "1.1"; },
      [](JoinClaim* claim) { claim->member.tcp_address = "10.0.0.1"; },
      [](JoinClaim* claim) { claim->member.tcp_port = 1; },
      [](JoinClaim* claim) {
        claim->member.facts = {{"a", "b"}};
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    JoinClaim claim = ClaimOf(1, 2);
    changes[i](&claim);
    EXPECT_FALSE(IsJoinProof(proof, "secret", kNonce, claim)) << "change " << i;
  }
}

TEST(JoinProofTest, CutLongOrEmptyProofFails) {
  const std::string proof = JoinProof("secret", kNonce, ClaimOf(1, 2));
  for (const std::string& wrong : {std::string(), proof.substr(1), proof + "x", std::string(kProofBytes, '\0')}) {
    EXPECT_FALSE(IsJoinProof(wrong, "secret", kNonce, ClaimOf(1, 2)));
  }
}

TEST(JoinProofTest, TextMovedBetweenFieldsChangesTheProof) {
  JoinClaim one = ClaimOf(1, 2);
  one.member.peer.host = "ab";
  one.member.host_id = "c";
  JoinClaim other = one;
  other.member.peer.host = "a";
  other.member.host_id = "bc";
  EXPECT_NE(JoinProof("secret", kNonce, one), JoinProof("secret", kNonce, other));
}

TEST(JoinProofTest, TextMovedBetweenFactsChangesTheProof) {
  const auto proof = [](const std::vector<Fact>& facts) {
    JoinClaim claim = ClaimOf(1, 2);
    claim.member.facts = facts;
    return JoinProof("secret", kNonce, claim);
  };
  EXPECT_NE(proof({{"a", "bc"}}), proof({{"ab", "c"}}));
  EXPECT_NE(proof({{"a", "b"}, {"c", "d"}}), proof({{"c", "d"}, {"a", "b"}}));
  EXPECT_NE(proof({{"a", "b"}, {"c", "d"}}), proof({{"a", "b1:c1:d"}}));
}

TEST(RandomBytesTest, DiffersFromCallToCall) {
  const absl::StatusOr<std::string> one = RandomBytes(kNonceBytes);
  const absl::StatusOr<std::string> other = RandomBytes(kNonceBytes);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->size(), kNonceBytes);
  EXPECT_NE(*one, *other);
}

TEST(NonceLedgerTest, NonceCountsOnce) {
  NonceLedger ledger(2);
  ledger.Issue("a");
  EXPECT_FALSE(ledger.Consume("b"));
  EXPECT_TRUE(ledger.Consume("a"));
  EXPECT_FALSE(ledger.Consume("a"));
}

TEST(NonceLedgerTest, BeyondItsCapacityTheOldestIsForgotten) {
  NonceLedger ledger(2);
  for (const char* nonce : {"a", "b", "c"}) ledger.Issue(nonce);
  EXPECT_FALSE(ledger.Consume("a"));
  EXPECT_TRUE(ledger.Consume("b"));
  EXPECT_TRUE(ledger.Consume("c"));
}

}  // namespace
}  // namespace ronda
