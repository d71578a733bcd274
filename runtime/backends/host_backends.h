// SPDX-License-Identifier: Apache-2.0

// The backends for tensors in host memory: through shared memory, messages, or both in two levels. Each backend also
// connects the job's control plane.
#ifndef RONDA_RUNTIME_BACKENDS_HOST_BACKENDS_H_
#define RONDA_RUNTIME_BACKENDS_HOST_BACKENDS_H_

#include <memory>
#include <string>
#include <vector>

#include "runtime/backends/registry.h"
#include "runtime/base/config.h"
#include "runtime/base/peer.h"
#include "runtime/collectives/host_map.h"
#include "runtime/mpi/mpi_session.h"
#include "runtime/rendezvous/rank_facts.h"
#include "runtime/rendezvous/rendezvous.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// What a rank knows about the job after the rendezvous. All fields are the same on every rank, except `config`,
// `topology`, the listeners in `rendezvous`, and `mpi`.
struct FoundJob {
  const Config& config;
  RendezvousResult rendezvous;
  ConnectionSettings settings;      // rank 0's
  Topology topology;                // of this rank
  std::vector<Peer> peers;          // by rank
  HostMap hosts;                    // of all ranks
  std::shared_ptr<MpiSession> mpi;  // nullptr: MPI has not been started
};

// HostBackend::connect returns the errors of ShmWorld::Connect(), of ConnectMessageControlPlane() and of the carrier.
// In a job on several hosts, the control plane reports the job's first failure to ranks that wait in shared memory, and
// a rank that departs from the job also departs from the shared memory.

// Returns the options for connecting through the shared memory of one host.
ShmWorld::Options ShmOptions(const Config& config, const std::string& job_id, const Topology& topology);

// Returns the options for starting the MPI of this process's launcher.
MpiSession::Options MpiOptions(const JobEnvironment& job);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BACKENDS_HOST_BACKENDS_H_
