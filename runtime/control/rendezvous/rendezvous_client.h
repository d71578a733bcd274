#ifndef RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_CLIENT_H_
#define RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_CLIENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/control/rendezvous/endpoint.h"
#include "runtime/control/rendezvous/membership.h"

namespace ronda {

struct RendezvousClientOptions {
  Endpoint endpoint;                           // of rank 0
  std::string secret;                          // of the job; may be empty on a loopback endpoint only
  JoinClaim claim;                             // who asks
  absl::Duration timeout = absl::Seconds(30);  // longest wait for rank 0 to appear; then its own timeout counts
  // What to think of if rank 0 does not appear, for the message.
  std::string advice =
      "it has not started, or MASTER_ADDR and MASTER_PORT differ between ranks, or another program holds the port";
};

// Joins the job whose rank 0 runs a RendezvousServer at the endpoint; blocks until everybody has joined. Thread-safe.
//
// Errors: FAILED_PRECONDITION without a secret beyond loopback; DEADLINE_EXCEEDED if rank 0 does not appear, or names
// the ranks that did not; UNAVAILABLE if rank 0 went away; those of RendezvousService::Join if this rank is refused.
absl::StatusOr<Membership> JoinRendezvous(const RendezvousClientOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_CONTROL_RENDEZVOUS_RENDEZVOUS_CLIENT_H_
