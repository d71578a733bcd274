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
// - with a job id (from rondarun), the ranks meet in the shared memory of that name;
// - with a master address, they first meet at rank 0 to agree on a job id, and see there who shares a host.
//
// Errors: UNIMPLEMENTED if the ranks are on several hosts; those of RendezvousServer, JoinRendezvous and
// ShmWorld::Connect, which name the ranks that are missing or do not fit.
absl::StatusOr<Job> Bootstrap(const Config& config);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_BOOTSTRAP_H_
