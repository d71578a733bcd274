#include "runtime/control/rendezvous/rendezvous_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/ronda/v1/rendezvous.grpc.pb.h"
#include "runtime/base/status_macros.h"
#include "runtime/control/rendezvous/grpc_channel.h"
#include "runtime/control/rendezvous/grpc_status.h"
#include "runtime/control/rendezvous/join_proof.h"
#include "runtime/control/rendezvous/rendezvous_codec.h"

namespace ronda {
namespace {

// Rank 0 answers by its own deadline, with better words than ours; this is for the answer's way.
constexpr absl::Duration kAnswerGrace = absl::Seconds(5);

// Bounds what the answer says about rank 0's deadline; the longest that RONDA_START_TIMEOUT can be.
constexpr absl::Duration kMaxWait = absl::Hours(24);

absl::StatusOr<v1::ChallengeResponse> Challenge(v1::Rendezvous::Stub* stub, const RendezvousClientOptions& options) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + options.timeout));
  context.set_wait_for_ready(true);
  v1::ChallengeResponse challenge;
  const grpc::Status status = stub->Challenge(&context, v1::ChallengeRequest(), &challenge);
  if (!status.ok()) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat(ToString(options.claim.member.peer), " found no rank 0 at ",
                                     ToString(options.endpoint), " within ", absl::FormatDuration(options.timeout),
                                     ": ", options.advice, " (", status.error_message(), ")"));
  }
  if (challenge.nonce().size() != kNonceBytes || challenge.wait_ms() < 0) {
    return absl::InvalidArgumentError("rendezvous: rank 0 sent a damaged challenge");
  }
  return challenge;
}

absl::StatusOr<v1::JoinResponse> Join(v1::Rendezvous::Stub* stub, const v1::ChallengeResponse& challenge,
                                      const RendezvousClientOptions& options) {
  v1::JoinRequest request = EncodeClaim(options.claim);
  request.set_nonce(challenge.nonce());
  if (!options.secret.empty()) request.set_proof(JoinProof(options.secret, challenge.nonce(), options.claim));
  const absl::Duration wait = std::min(absl::Milliseconds(challenge.wait_ms()), kMaxWait) + kAnswerGrace;
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + wait));
  v1::JoinResponse response;
  const absl::Status status = FromGrpcStatus(stub->Join(&context, request, &response));
  if (absl::IsUnavailable(status)) {
    return absl::UnavailableError(absl::StrCat("rank 0 at ", ToString(options.endpoint), " went away before all of ",
                                               options.claim.size, " ranks had joined (", status.message(), ")"));
  }
  if (!status.ok()) return status;
  return response;
}

}  // namespace

absl::StatusOr<Membership> JoinRendezvous(const RendezvousClientOptions& options) {
  RONDA_RETURN_IF_ERROR(CheckSecret(options.endpoint, options.secret));
  // Takes messages of any length: the table of a large job is long, and DecodeMembership checks it.
  const std::unique_ptr<v1::Rendezvous::Stub> stub = v1::Rendezvous::NewStub(ConnectChannel(options.endpoint, {}));
  RONDA_ASSIGN_OR_RETURN(const v1::ChallengeResponse challenge, Challenge(stub.get(), options));
  RONDA_ASSIGN_OR_RETURN(const v1::JoinResponse response, Join(stub.get(), challenge, options));
  return DecodeMembership(response, options.claim);
}

}  // namespace ronda
