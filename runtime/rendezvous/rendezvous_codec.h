// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// Converts between the messages of the rendezvous and plain structs. The decoders check the input from the network, so
// no other code has to.

// Encodes a claim. The result has no nonce and no proof.
v1::JoinRequest EncodeClaim(const JoinClaim& claim);
v1::JoinResponse EncodeMemberList(const MemberList& member_list);

// Decodes a claim.
// Errors: INVALID_ARGUMENT with the name of the field that is out of bounds. The rank is only checked against the size
// in the claim.
absl::StatusOr<JoinClaim> DecodeClaim(const v1::JoinRequest& request);

// Decodes the answer to `claim`. Checks that the answer contains all ranks in order, and that it describes the rank of
// the claim as the claim does.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<MemberList> DecodeMemberList(const v1::JoinResponse& response, const JoinClaim& claim);

// Returns the HMAC-SHA256 over rank 0's nonce and the claim. With it a rank proves that it knows the job's secret,
// without sending the secret. REQUIRES: `secret` is not empty.
std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

// Whether `proof` equals JoinProof(secret, nonce, claim). The comparison always takes the same time, no matter where
// the two proofs differ. REQUIRES: `secret` is not empty.
bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_
