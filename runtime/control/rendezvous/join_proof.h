// How a rank proves that it knows the job's secret without sending it: HMAC-SHA256 over rank 0's nonce and the claim.
#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_JOIN_PROOF_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_JOIN_PROOF_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/control/rendezvous/membership.h"

namespace ronda {

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

// Random bytes that cannot be guessed.
// Errors: INTERNAL if the system has none.
absl::StatusOr<std::string> RandomBytes(size_t count);

// REQUIRES: `secret` is not empty.
std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

// Whether `proof` is JoinProof(secret, nonce, claim); takes the same time wherever the two first differ.
// REQUIRES: `secret` is not empty.
bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_JOIN_PROOF_H_
