#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SHM_TRANSPORT_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SHM_TRANSPORT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "runtime/collectives/transport.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Connects this rank to the others of its host through shared memory; waits for all of them.
// Errors: as ShmWorld::Connect.
absl::StatusOr<Transport> ConnectShmTransport(ShmWorld::Options options);

// The transports of all ranks of a job whose ranks are threads of this process.
// Errors: as ShmWorld::ConnectInProcess.
absl::StatusOr<std::vector<Transport>> ConnectShmTransportsInProcess(ShmWorld::Options options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_TRANSPORT_H_
