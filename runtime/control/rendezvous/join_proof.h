// How a rank proves that it knows the job's secret without sending it: HMAC-SHA256 over rank 0's nonce and the claim.
#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_JOIN_PROOF_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_JOIN_PROOF_H_

#include <string>

#include "absl/strings/string_view.h"
#include "runtime/control/rendezvous/membership.h"
#include "runtime/control/rendezvous/secret_proof.h"

namespace ronda {

// REQUIRES: `secret` is not empty.
std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

// Whether `proof` is JoinProof(secret, nonce, claim); takes the same time wherever the two first differ.
// REQUIRES: `secret` is not empty.
bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_JOIN_PROOF_H_
