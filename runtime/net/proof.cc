#include "runtime/net/proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"

namespace ronda {

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1) {
    return absl::InternalError("the system gives no random bytes");
  }
  return bytes;
}

std::string SecretProof(absl::string_view secret, std::initializer_list<absl::string_view> fields) {
  // Each field with its length before it, so that no two lists of fields read the same.
  std::string text;
  for (const absl::string_view field : fields) absl::StrAppend(&text, field.size(), ":", field);
  std::string proof(kProofBytes, '\0');
  unsigned int length = 0;
  const unsigned char* const made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                         reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                         reinterpret_cast<unsigned char*>(proof.data()), &length);
  RONDA_CHECK(made != nullptr && length == kProofBytes);
  return proof;
}

bool IsSameProof(absl::string_view proof, absl::string_view expected) {
  return proof.size() == expected.size() && CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace ronda
