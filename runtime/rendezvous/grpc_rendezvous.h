// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_GRPC_RENDEZVOUS_H_
#define RONDA_RUNTIME_RENDEZVOUS_GRPC_RENDEZVOUS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/net/endpoint.h"
#include "runtime/rendezvous/rendezvous_table.h"

namespace ronda {

// The gRPC server in rank 0's process through which the ranks of a job find each other. It runs from the start of the
// job until all ranks have joined, and listens on a single address. Rank 0 is a member from the start, and does not
// call itself.
//
//   RONDA_ASSIGN_OR_RETURN(auto server, RendezvousServer::Start({...}));
//   RONDA_ASSIGN_OR_RETURN(MemberList members, server->Await());
//
// Thread-safe. The destructor fails the calls of ranks that are still waiting, and waits until the last answers have
// been sent.
class RendezvousServer {
 public:
  struct Options {
    std::string plugin;                          // the path of libronda_hosts.so; empty: the folder of plugins
    Endpoint endpoint;                           // where the server listens
    std::string secret;                          // of the job; may be empty only on a loopback endpoint
    std::string job_id;                          // the id of the job
    JoinClaim claim;                             // of rank 0
    absl::Duration timeout = absl::Seconds(30);  // longest wait for all ranks, from Start on
  };

  // Errors: FAILED_PRECONDITION if the address is not on loopback and there is no secret, or if the address does not
  // belong to this host; ALREADY_EXISTS if another program uses the port; the errors of LoadHostsPlugin().
  static absl::StatusOr<std::unique_ptr<RendezvousServer>> Start(const Options& options);

  ~RendezvousServer();

  // Returns the port on which the server listens.
  int port() const;

  // Blocks until all ranks have joined.
  // Errors: DEADLINE_EXCEEDED that names the missing ranks.
  absl::StatusOr<MemberList> Await();

 private:
  class Impl;

  explicit RendezvousServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

struct RendezvousClientOptions {
  std::string plugin;                          // as RendezvousServer's
  Endpoint endpoint;                           // of rank 0
  std::string secret;                          // of the job; may be empty only on a loopback endpoint
  JoinClaim claim;                             // of this rank
  absl::Duration timeout = absl::Seconds(30);  // longest wait for rank 0 to appear; then rank 0's timeout applies
  // Possible reasons why rank 0 does not appear, for the error text.
  std::string advice =
      "it has not started, or MASTER_ADDR and MASTER_PORT differ between ranks, or another program holds the port";
};

// Joins a job through the RendezvousServer of its rank 0. Blocks until all ranks have joined. Thread-safe.
//
// Errors: FAILED_PRECONDITION if there is no secret and the endpoint is not on loopback; DEADLINE_EXCEEDED if rank 0 or
// other ranks do not appear (the text names them); UNAVAILABLE if rank 0 disappears; the errors of
// RendezvousService::Join() if rank 0 rejects this rank; the errors of LoadHostsPlugin().
absl::StatusOr<MemberList> JoinRendezvous(const RendezvousClientOptions& options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_GRPC_RENDEZVOUS_H_
