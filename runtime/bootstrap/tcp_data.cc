#include "runtime/bootstrap/tcp_data.h"

#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/control/rendezvous/endpoint.h"

namespace ronda {

absl::StatusOr<std::vector<std::unique_ptr<PointToPoint>>> ConnectTcpData(const Meeting& meeting,
                                                                          const std::vector<TcpLevel>& levels,
                                                                          const TcpDataOptions& options) {
  TcpMeshOptions mesh = {.job = {.job_id = meeting.membership.job_id, .secret = meeting.secret},
                         .rank = options.rank,
                         .timeout = options.timeout,
                         .job_failure = options.job_failure};
  for (const Member& member : meeting.membership.members) {
    RONDA_ASSIGN_OR_RETURN(Endpoint endpoint, ResolveEndpoint(member.data_address, member.data_port));
    RONDA_RETURN_IF_ERROR(CheckSecret(endpoint, meeting.secret));
    mesh.peers.push_back(member.peer);
    mesh.endpoints.push_back(std::move(endpoint));
  }
  return ConnectTcp(*meeting.data_listener, mesh, levels);
}

}  // namespace ronda
