// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/net/proof.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// Converts between the rendezvous' messages and its plain structs. Input from the network is checked here, once.

// Encodes the claim without a nonce and a proof.
v1::JoinRequest EncodeClaim(const JoinClaim& claim);
v1::JoinResponse EncodeMemberList(const MemberList& member_list);

// Errors: INVALID_ARGUMENT that says which field is out of bounds. The only check of the rank is that it is below the
// claimed size.
absl::StatusOr<JoinClaim> DecodeClaim(const v1::JoinRequest& request);

// Checks the answer to `claim`: all ranks are present, in order, and the rank that sent the claim is described as in
// the claim.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<MemberList> DecodeMemberList(const v1::JoinResponse& response, const JoinClaim& claim);

// How a rank proves that it knows the job's secret without sending it: HMAC-SHA256 over rank 0's nonce and the claim.

// REQUIRES: `secret` is not empty.
std::string JoinProof(absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

// Whether `proof` is JoinProof(secret, nonce, claim). Takes the same time wherever the two proofs first differ.
// REQUIRES: `secret` is not empty.
bool IsJoinProof(absl::string_view proof, absl::string_view secret, absl::string_view nonce, const JoinClaim& claim);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_CODEC_H_
