// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_BACKENDS_JOB_H_
#define RONDA_RUNTIME_BACKENDS_JOB_H_

#include "absl/status/statusor.h"
#include "runtime/base/config.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/transport.h"

namespace ronda {

// A rank's topology in a job, and its connection to the other ranks.
struct ConnectedJob {
  Topology topology;
  Transport transport;
};

// Finds the other ranks as `config.job` says, and connects to them. Blocks until all ranks are connected. Each step
// takes at most `config.tunables.start_timeout`.
//  - A job of one rank connects to nothing.
//  - With a job id, ranks on one host find each other in the shared memory that the id names, unless RONDA_BACKEND or
//    RONDA_MPI asks for MPI or TCP.
//  - In all other jobs, the ranks find each other at rank 0, whose address comes from the environment or through MPI.
//    Rank 0 tells them which ranks share a host and use its shared memory. Between hosts, data travels over MPI or TCP,
//    and control messages over TCP. Rank 0's RONDA_BACKEND and RONDA_MPI can change the backend.
//  - With RONDA_CONTROL=mpi, the ranks find each other through MPI messages, and control messages between hosts also
//    travel over MPI.
// MPI's own calls (MPI_Init, creating communicators) have no timeout, because MPI's launcher watches the ranks during
// them.
//
// Errors: FAILED_PRECONDITION if no backend can carry the data; the errors of RendezvousServer, JoinRendezvous(),
// ShmWorld::Connect(), MpiSession::Start() and of the backend. They name the ranks that are missing, or whose settings
// conflict.
absl::StatusOr<ConnectedJob> ConnectJob(const Config& config);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_JOB_H_
