// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/proof.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <string>

namespace ronda {
namespace {

// Returns the HMAC that OpenSSL's own function computes.
std::string Hmac(const std::string& key, const std::string& text) {
  std::string digest(kProofBytes, '\0');
  unsigned int length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), reinterpret_cast<unsigned char*>(digest.data()), &length);
  EXPECT_EQ(length, kProofBytes);
  return digest;
}

TEST(ProofTest, IsTheHmacOfTheFieldsWithTheirLengths) {
  for (const size_t size : {1, 20, 63, 64, 65, 131, 1000}) {  // also around the block size of 64 bytes
    std::string secret;
    for (size_t i = 0; i < size; ++i) secret.push_back(static_cast<char>(7 * i + size));
    EXPECT_EQ(SecretProof(secret, {"purpose", "", std::string(300, 'x')}),
              Hmac(secret, "7:purpose0:300:" + std::string(300, 'x')))
        << size;
  }
}

TEST(ProofTest, TellsFieldsApart) {
  const std::string proof = SecretProof("secret", {"ab", "c"});
  EXPECT_TRUE(IsSameProof(proof, SecretProof("secret", {"ab", "c"})));
  EXPECT_FALSE(IsSameProof(proof, SecretProof("secret", {"a", "bc"})));
  EXPECT_FALSE(IsSameProof(proof, SecretProof("Secret", {"ab", "c"})));
  EXPECT_FALSE(IsSameProof(proof.substr(1), proof));
}

TEST(ProofTest, RandomBytesAreAsManyAsAskedForAndDiffer) {
  EXPECT_EQ(RandomBytes(0)->size(), 0U);
  EXPECT_EQ(RandomBytes(1000)->size(), 1000U);
  EXPECT_NE(*RandomBytes(32), *RandomBytes(32));
}

}  // namespace
}  // namespace ronda
