// SPDX-License-Identifier: Apache-2.0

// Proofs that a process knows the job's secret, without sending it: HMAC-SHA256 over the fields of a message.
#ifndef RONDA_RUNTIME_NET_PROOF_H_
#define RONDA_RUNTIME_NET_PROOF_H_

#include <algorithm>
#include <cstddef>
#include <deque>
#include <initializer_list>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ronda {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// Random bytes that cannot be guessed.
// Errors: INTERNAL if the system provides no random bytes.
absl::StatusOr<std::string> RandomBytes(size_t count);

// Proves `fields`, including the borders between them. The first field names the purpose, so that a proof for one
// purpose is not valid for another with the same secret.
// REQUIRES: `secret` is not empty.
std::string SecretProof(absl::string_view secret, std::initializer_list<absl::string_view> fields);

// Whether `proof` is `expected`. Takes the same time wherever the two texts first differ.
bool IsSameProof(absl::string_view proof, absl::string_view expected);

// The nonces that were issued and not used yet, so that a proof is accepted only once.
//
// Thread-compatible.
class NonceLedger {
 public:
  // `capacity` limits the memory that unauthenticated callers can use: beyond it, the oldest nonce is forgotten.
  explicit NonceLedger(size_t capacity) : capacity_(capacity) {}

  void Issue(std::string nonce) {
    if (outstanding_.size() == capacity_) outstanding_.pop_front();
    outstanding_.push_back(std::move(nonce));
  }

  // Whether `nonce` was issued and not consumed before.
  bool Consume(absl::string_view nonce) {
    const auto it = std::find(outstanding_.begin(), outstanding_.end(), nonce);
    if (it == outstanding_.end()) return false;
    outstanding_.erase(it);
    return true;
  }

 private:
  const size_t capacity_;
  std::deque<std::string> outstanding_;  // oldest first
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_NET_PROOF_H_
