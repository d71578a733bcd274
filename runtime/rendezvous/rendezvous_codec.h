// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// Converts between rendezvous messages and plain structs. The decoders validate input from the network, so no other
// code has to.

// Encodes a claim, without nonce and proof.
v1::JoinRequest EncodeClaim(const JoinClaim& claim);
v1::JoinResponse EncodeMemberList(const MemberList& member_list);

// Decodes another rank's claim.
// Errors: INVALID_ARGUMENT that names the field that is out of bounds. Checks the rank only against the size in the
// claim.
absl::StatusOr<JoinClaim> DecodeClaim(const v1::JoinRequest& request);

// Decodes the answer to `claim`. Checks that the answer lists all ranks in order, and matches what `claim` says about
// its own rank.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<MemberList> DecodeMemberList(const v1::JoinResponse& response, const JoinClaim& claim);

// Returns the HMAC-SHA256 of rank 0's nonce and the claim, with which a rank proves that it knows the job's secret.
// REQUIRES: `secret` is not empty.
std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

// Returns whether `proof` equals JoinProof(secret, nonce, claim), comparing in constant time. REQUIRES: `secret` is not
// empty.
bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_
