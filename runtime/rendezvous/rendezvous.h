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

// What a rank knows about the other ranks after the rendezvous.
struct RendezvousResult {
  MemberList member_list;
  std::string secret;  // of the job; may be empty if all ranks are on loopback
  // The listener for messages over TCP, or nullptr if this rank has no address for them; its port in the member list is
  // then 0. A rank with children in the control tree always has a listener if control messages go over TCP.
  std::unique_ptr<TcpListener> tcp_listener;
  // How ranks on different hosts exchange control messages. Ranks have listeners only if this is TCP.
  NetworkSettings::Control control = NetworkSettings::Control::kTcp;
};

// Runs the rendezvous at the master address in `config`. Blocks until all ranks have joined. `mpi_library` names the
// MPI library that this rank would use. Errors: those of ResolveEndpoint(), RendezvousServer and JoinRendezvous();
// NOT_FOUND if no network interface is suitable.
absl::StatusOr<RendezvousResult> RendezvousAtAddress(const Config& config, absl::string_view mpi_library);

// Runs the rendezvous at an address that rank 0 chooses, with a secret that rank 0 generates and broadcasts together
// with the address through MPI. If rank 0's settings ask for control messages over MPI, the rendezvous uses only MPI
// messages.
// Errors: those of RendezvousAtAddress(), on all ranks; MPI errors.
absl::StatusOr<RendezvousResult> RendezvousThroughMpi(const Config& config, MpiSession& session);

}  // namespace ronda

#endif  // RONDA_RUNTIME_RENDEZVOUS_RENDEZVOUS_H_
