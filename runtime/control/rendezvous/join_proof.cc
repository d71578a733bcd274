#include "runtime/control/rendezvous/join_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"

namespace ronda {
namespace {

// Each field with its length before it, so that no two claims read the same. The first field keeps proofs made for
// other purposes with the same secret apart.
std::string SignedText(absl::string_view nonce, const JoinClaim& claim) {
  const Peer& peer = claim.member.peer;
  const std::string numbers = absl::StrCat(peer.rank, ",", claim.size, ",", peer.pid);
  std::string text;
  for (const absl::string_view field : std::initializer_list<absl::string_view>{
           "ronda.v1.Rendezvous.Join", nonce, numbers, peer.host, claim.member.host_id, claim.member.version}) {
    absl::StrAppend(&text, field.size(), ":", field);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return absl::InternalError("the system gives no random bytes");
  }
  return bytes;
}

std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  const std::string text = SignedText(nonce, claim);
  std::string proof(kProofBytes, '\0');
  unsigned int length = 0;
  const unsigned char* const made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                         reinterpret_cast<unsigned char*>(proof.data()), &length);
  RONDA_CHECK(made != nullptr && length == kProofBytes);
  return proof;
}

bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim) {
  const std::string expected = JoinProof(secret, nonce, claim);
  return proof.size() == expected.size() && CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace ronda
