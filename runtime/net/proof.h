// SPDX-License-Identifier: Apache-2.0

// Functions with which a process proves that it knows the job's secret without sending it. A proof is the HMAC-SHA256
// of the fields of a message.
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

// Returns cryptographically secure random bytes.
// Errors: INTERNAL if the system provides no random bytes.
absl::StatusOr<std::string> RandomBytes(size_t count);

// Returns the proof of `fields`, which also covers the fields' boundaries. The first field names the proof's purpose,
// so that the proof is not valid for any other purpose with the same secret.
// REQUIRES: `secret` is not empty.
std::string SecretProof(absl::string_view secret, std::initializer_list<absl::string_view> fields);

// Returns whether `proof` equals `expected`, in constant time.
bool IsSameProof(absl::string_view proof, absl::string_view expected);

// Stores the issued nonces that have not been used, so that each proof is accepted only once.
//
// Thread-compatible.
class NonceLedger {
 public:
  // `capacity` limits the memory that unauthenticated callers can use. Beyond it, the oldest nonces are dropped.
  explicit NonceLedger(size_t capacity) : capacity_(capacity) {}

  void Issue(std::string nonce) {
    if (outstanding_.size() == capacity_) outstanding_.pop_front();
    outstanding_.push_back(std::move(nonce));
  }

  // Marks `nonce` as used. Returns false if it was not issued, or has been used or dropped.
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
