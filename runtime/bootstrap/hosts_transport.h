#ifndef RONDA_RUNTIME_BOOTSTRAP_HOSTS_TRANSPORT_H_
#define RONDA_RUNTIME_BOOTSTRAP_HOSTS_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/bootstrap/meeting.h"
#include "runtime/collectives/host_map.h"
#include "runtime/collectives/transport.h"
#include "runtime/mpi/mpi_session.h"

namespace ronda {

// What connecting ranks on several hosts takes; but for `rank`, `peers`' order and `session`, the same on every rank.
struct HostsTransportOptions {
  RankId rank = 0;
  std::vector<Peer> peers;  // by rank
  HostMap hosts;
  Meeting meeting;
  // kTwoLevels: shared memory on each host and messages across; kFlat: messages between all ranks.
  enum class Levels { kFlat, kTwoLevels } levels = Levels::kTwoLevels;
  enum class Carrier { kMpi, kTcp } carrier = Carrier::kMpi;  // of data; kTcp: control messages go over gRPC
  std::shared_ptr<MpiSession> session;                        // nullptr: nothing goes over MPI
  absl::Duration connect_timeout = absl::Seconds(30);         // of each step
  absl::Duration control_timeout = absl::Minutes(10);         // as of ShmWorld
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration heartbeat_timeout = absl::Seconds(10);
};

// Connects this rank to the others, of which some are on other hosts: control messages over gRPC or, as the meeting
// says, MPI; data over MPI or TCP and, on a host, shared memory. The control plane knows the job's first failure; it
// reaches who waits in shared memory, and a rank that departs departs there too.
//
// Errors: those of ShmWorld::Connect, ConnectGrpcControlPlane, ConnectMpiControlPlane, MpiSession::Connect and
// ConnectTcp.
absl::StatusOr<Transport> ConnectHosts(HostsTransportOptions options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_BOOTSTRAP_HOSTS_TRANSPORT_H_
