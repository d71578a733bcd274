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

// The facts that one rank has about the other ranks after the rendezvous at rank 0.
struct RendezvousResult {
  MemberList member_list;
  std::string secret;  // of the job; may be empty if all ranks are on loopback
  // The listener for messages over TCP, or nullptr if this rank has no address for messages over TCP. In the list of
  // members, a member without a port has no listener. If control messages go over TCP, a rank with children in the tree
  // of control messages has a listener.
  std::unique_ptr<TcpListener> tcp_listener;
  // The way in which ranks on different hosts exchange control messages. Unless this is TCP, no rank has a listener.
  NetworkSettings::Control control = NetworkSettings::Control::kTcp;
};

// Carries out the rendezvous at the master address in `config`. Blocks until all ranks have joined. `mpi_library` names
// the MPI that this rank would use. Errors: the errors of ResolveEndpoint, RendezvousServer and JoinRendezvous;
// NOT_FOUND if no network interface fits.
absl::StatusOr<RendezvousResult> RendezvousAtAddress(const Config& config, absl::string_view mpi_library);

// Carries out the rendezvous at an address that rank 0 chooses, with a secret that rank 0 generates. Rank 0 broadcasts
// the address and the secret through MPI. If the settings of rank 0 ask for control messages over MPI, the rendezvous
// itself uses only messages of MPI.
// Errors: as RendezvousAtAddress, on all ranks; the errors of MPI.
absl::StatusOr<RendezvousResult> RendezvousThroughMpi(const Config& config, MpiSession& session);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_H_
