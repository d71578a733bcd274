// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_H_
#define RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/config.h"
#include "runtime/mpi/mpi_session.h"
#include "runtime/rendezvous/rendezvous_table.h"
#include "runtime/tcp/tcp_listener.h"

namespace ronda {

// The knowledge of one rank about the others after the rendezvous at rank 0.
struct RendezvousResult {
  MemberList member_list;
  std::string secret;  // of the job; may be empty if all ranks are on loopback
  // The listener for messages over TCP; nullptr if this rank has no address for them. A member without a port has no
  // listener. If control messages go over TCP, a rank with children in the tree of control messages has a listener.
  std::unique_ptr<TcpListener> tcp_listener;
  // How control messages travel across hosts. Without TCP no rank has a listener.
  NetworkSettings::Control control = NetworkSettings::Control::kTcp;
};

// The rendezvous at the master address in `config`; blocks until all ranks have come. `mpi_library` names the MPI that
// this rank would use. Errors: the errors of ResolveEndpoint, RendezvousServer and JoinRendezvous; NOT_FOUND if no
// network interface fits.
absl::StatusOr<RendezvousResult> RendezvousAtAddress(const Config& config, absl::string_view mpi_library);

// The rendezvous at an address that rank 0 chooses and broadcasts through MPI, with a secret that it generates. If rank
// 0's control messages should travel over MPI, the rendezvous uses only messages of MPI.
// Errors: as RendezvousAtAddress, on all ranks; the errors of MPI.
absl::StatusOr<RendezvousResult> RendezvousThroughMpi(const Config& config, MpiSession& session);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_H_
