// Between the rendezvous' messages and its plain structs. What comes from the network is checked here, once.
#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_CODEC_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_CODEC_H_

#include "absl/status/statusor.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/control/rendezvous/membership.h"

namespace ronda {

// Without nonce and proof.
v1::JoinRequest EncodeClaim(const JoinClaim& claim);
v1::JoinResponse EncodeMembership(const Membership& membership);

// Errors: INVALID_ARGUMENT that says which field is out of bounds. The rank is only known to be below the size it
// claims.
absl::StatusOr<JoinClaim> DecodeClaim(const v1::JoinRequest& request);

// Checks the answer to `claim`: all ranks are there, in order, and the one that asked is as it described itself.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Membership> DecodeMembership(const v1::JoinResponse& response, const JoinClaim& claim);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_CODEC_H_
