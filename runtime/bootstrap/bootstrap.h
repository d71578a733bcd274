#ifndef RONDA_RUNTIME_BOOTSTRAP_BOOTSTRAP_H_
#define RONDA_RUNTIME_BOOTSTRAP_BOOTSTRAP_H_

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/topology.h"

namespace ronda {

// One rank's place in a job, and its connection to the others.
struct Job {
  Topology topology;
  Transport transport;
};

// Finds the other ranks as `config.job` says, and connects to them; blocks until all are there, for at most
// `config.tunables.start_timeout` a step:
// - a job of one rank needs nobody;
// - with a job id, on one host, the ranks meet in the shared memory of that name;
// - otherwise they meet at rank 0, whose address the environment says or MPI brings, and see there who shares a host;
//   on one host they go on in shared memory, across hosts over MPI (data) and gRPC (control). RONDA_BACKEND and
//   RONDA_MPI of rank 0 can change that;
// - with RONDA_CONTROL=mpi they meet by messages of MPI, and control messages go that way across hosts.
// Only what MPI does itself (MPI_Init, making communicators) has no deadline: there the launcher watches.
//
// Errors: FAILED_PRECONDITION if no backend can carry the data; those of RendezvousServer, JoinRendezvous,
// ShmWorld::Connect, MpiSession::Start and ConnectHosts, which name the ranks that are missing or do not fit.
absl::StatusOr<Job> Bootstrap(const Config& config);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_BOOTSTRAP_H_
