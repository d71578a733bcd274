// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/proof.h"

// This file calls OpenSSL's SHA-256 functions directly, because its EVP functions would add 3.7 MB of providers to
// libronda.so.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

std::string Sha256(absl::string_view first, absl::string_view second) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, first.data(), first.size());
  SHA256_Update(&context, second.data(), second.size());
  SHA256_Final(reinterpret_cast<unsigned char*>(digest.data()), &context);
  return digest;
}

// Computes the HMAC of RFC 2104, with B = 64 and H = SHA-256.
std::string HmacSha256(absl::string_view key, absl::string_view text) {
  const std::string short_key = key.size() > SHA256_CBLOCK ? Sha256(key, "") : std::string(key);
  std::string inner(SHA256_CBLOCK, '\x36');
  std::string outer(SHA256_CBLOCK, '\x5c');
  for (size_t i = 0; i < short_key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ short_key[i]);
    outer[i] = static_cast<char>(outer[i] ^ short_key[i]);
  }
  return Sha256(outer, Sha256(inner, text));
}

}  // namespace

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return absl::InternalError("the system gives no random bytes");
    done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string SecretProof(absl::string_view secret, std::initializer_list<absl::string_view> fields) {
  // Each field is prefixed with its length, so that different lists of fields never yield the same text.
  std::string text;
  for (const absl::string_view field : fields) absl::StrAppend(&text, field.size(), ":", field);
  return HmacSha256(secret, text);
}

bool IsSameProof(absl::string_view proof, absl::string_view expected) {
  return proof.size() == expected.size() && CRYPTO_memcmp(proof.data(), expected.data(), expected.size()) == 0;
}

}  // namespace ronda
