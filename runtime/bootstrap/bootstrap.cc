#include "runtime/bootstrap/bootstrap.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/bootstrap/this_host.h"
#include "runtime/collectives/self/self_transport.h"
#include "runtime/collectives/shm/shm_transport.h"
#include "runtime/control/rendezvous/endpoint.h"
#include "runtime/control/rendezvous/join_proof.h"
#include "runtime/control/rendezvous/rendezvous_client.h"
#include "runtime/control/rendezvous/rendezvous_server.h"

namespace ronda {
namespace {

constexpr size_t kJobIdBytes = 16;

absl::StatusOr<Job> ConnectOnThisHost(const Tunables& tunables, const std::string& job_id, Topology topology) {
  RONDA_ASSIGN_OR_RETURN(Transport transport, ConnectShmTransport({.job_id = job_id,
                                                                   .rank = topology.rank,
                                                                   .size = topology.size,
                                                                   .hostname = topology.hostname,
                                                                   .connect_timeout = tunables.start_timeout,
                                                                   .control_timeout = tunables.stall_deadline}));
  return Job{.topology = std::move(topology), .transport = std::move(transport)};
}

// What the launcher said, completed on the assumption that all ranks are on this host.
absl::StatusOr<Topology> LaunchedTopology(const JobEnvironment& job) {
  const int local_size = job.local_size.value_or(job.size);
  if (local_size != job.size || job.cross_size.value_or(1) != 1) {
    return absl::UnimplementedError(absl::StrCat("this version of Ronda runs on one host, but ", local_size, " of the ",
                                                 job.size, " ranks are on the host of rank ", job.rank));
  }
  return Topology{.rank = job.rank,
                  .size = job.size,
                  .local_rank = job.local_rank.value_or(job.rank),
                  .local_size = local_size,
                  .hostname = HostName()};
}

absl::StatusOr<Membership> MeetAsCoordinator(const Config& config, const Endpoint& endpoint, JoinClaim claim) {
  RONDA_ASSIGN_OR_RETURN(const std::string id, RandomBytes(kJobIdBytes));
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<RendezvousServer> server,
                         RendezvousServer::Start({.endpoint = endpoint,
                                                  .secret = config.job.job_secret,
                                                  .job_id = absl::BytesToHexString(id),
                                                  .claim = std::move(claim),
                                                  .timeout = config.tunables.start_timeout}));
  return server->Await();
}

absl::StatusOr<Membership> Meet(const Config& config) {
  const JobEnvironment& job = config.job;
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, ResolveEndpoint(job.master_address, job.master_port));
  JoinClaim claim = {.member = {.peer = {.rank = job.rank, .host = HostName(), .pid = getpid()},
                                .host_id = HostId(),
                                .version = kVersion},
                     .size = job.size};
  if (job.rank == kCoordinatorRank) return MeetAsCoordinator(config, endpoint, std::move(claim));
  return JoinRendezvous({.endpoint = endpoint,
                         .secret = job.job_secret,
                         .claim = std::move(claim),
                         .timeout = config.tunables.start_timeout});
}

absl::Status CheckOneHost(const Membership& membership) {
  const Member& first = membership.members.front();
  for (const Member& member : membership.members) {
    if (member.host_id == first.host_id) continue;
    return absl::UnimplementedError(absl::StrCat(
        "this version of Ronda runs on one host, but ", ToString(first.peer), " and ", ToString(member.peer),
        " share no memory: they are on different hosts, or in containers that have their own /dev/shm or pids"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> Bootstrap(const Config& config) {
  const JobEnvironment& job = config.job;
  if (job.size == 1) {
    Topology alone{.hostname = HostName()};
    Transport transport = CreateSelfTransport(alone.hostname);
    return Job{.topology = std::move(alone), .transport = std::move(transport)};
  }
  if (!job.job_id.empty()) {
    RONDA_ASSIGN_OR_RETURN(Topology topology, LaunchedTopology(job));
    return ConnectOnThisHost(config.tunables, job.job_id, std::move(topology));
  }
  RONDA_ASSIGN_OR_RETURN(const Membership membership, Meet(config));
  RONDA_RETURN_IF_ERROR(CheckOneHost(membership));
  return ConnectOnThisHost(config.tunables, membership.job_id, TopologyOf(membership, job.rank));
}

}  // namespace ronda
