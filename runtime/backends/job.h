// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_JOB_H_
#define RONDA_RUNTIME_BACKENDS_JOB_H_

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// The topology of one rank in a job, and the rank's connection to the other ranks.
struct ConnectedJob {
  Topology topology;
  Transport transport;
};

// Finds the other ranks according to `config.job`, and connects to them. Blocks until all ranks have come. Each step
// takes at most `config.tunables.start_timeout`.
//  - A job of one rank connects to nothing.
//  - With a job id, on one host, the ranks find each other in the shared memory that is named by the id.
//  - In all other jobs the ranks find each other at rank 0, whose address comes from the environment or through MPI. At
//    rank 0 the ranks are told which ranks share a host. Ranks of one host then use shared memory. Between hosts, data
//    travels over MPI, and control messages over TCP. RONDA_BACKEND and RONDA_MPI can change the choice of backends.
//    Rank 0's values apply.
//  - With RONDA_CONTROL=mpi the ranks find each other by messages of MPI. Control messages between hosts then also
//    travel over MPI.
// Calls of MPI itself (MPI_Init, making communicators) have no deadline, because MPI's launcher watches the ranks
// during these calls.
//
// Errors: FAILED_PRECONDITION if no backend can carry the data; the errors of RendezvousServer, JoinRendezvous,
// ShmWorld::Connect, MpiSession::Start and of the backend. The errors name the ranks that are missing, or whose
// settings do not fit.
absl::StatusOr<ConnectedJob> ConnectJob(const Config& config);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_JOB_H_
