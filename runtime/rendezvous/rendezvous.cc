// SPDX-License-Identifier: Apache-2.0

#include "runtime/rendezvous/rendezvous.h"

#include <unistd.h>

#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/ronda/v1/rendezvous.pb.h"
#include "runtime/base/clock.h"
#include "runtime/base/config.h"
#include "runtime/base/logging.h"
#include "runtime/base/peer.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/version.h"
#include "runtime/control/tree/control_node.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/proof.h"
#include "runtime/rendezvous/grpc_rendezvous.h"
#include "runtime/rendezvous/message_rendezvous.h"
#include "runtime/rendezvous/rank_facts.h"

namespace ronda {
namespace {

constexpr size_t kJobIdBytes = 16;
constexpr size_t kSecretBytes = 32;
// The length of the suffix that each host appends to the job id.
constexpr size_t kHostSuffixBytes = 8;

// The tag for MpiSession::Connect. Later calls may reuse this tag.
constexpr int kRendezvousTag = 0;

constexpr char kLoopback[] = "127.0.0.1";
constexpr char kMpiAdvice[] =
    "do the hosts reach each other there? RONDA_NETWORK_INTERFACE names the network interface to use";

JoinClaim ClaimOf(const Config& config, absl::string_view mpi_library) {
  const JobEnvironment& job = config.job;
  return {.member = {.peer = {.rank = job.rank, .host = HostName(), .pid = getpid()},
                     .host_id = HostId(),
                     .version = kVersion,
                     .facts = FactsOf(config, mpi_library)},
          .size = job.size,
          .epoch = job.epoch};
}

// Returns the launcher's job id, by which the launcher can find shared memory that the job leaves behind, or a random
// id if the launcher has set none.
absl::StatusOr<std::string> JobIdOf(const JobEnvironment& job) {
  if (!job.job_id.empty() && job.job_id.size() + kHostSuffixBytes <= kMaxJobIdLength) return job.job_id;
  RONDA_ASSIGN_OR_RETURN(const std::string id, RandomBytes(kJobIdBytes));
  return absl::BytesToHexString(id);
}

// Returns the address at which other ranks can reach this rank. If rank 0's address is on loopback, all ranks are on
// one host, and this rank's address is on loopback too.
absl::StatusOr<Endpoint> OwnEndpoint(const Config& config, const Endpoint& rendezvous) {
  Endpoint endpoint = rendezvous;
  if (config.job.rank != kCoordinatorRank && !rendezvous.loopback) {
    RONDA_ASSIGN_OR_RETURN(endpoint, ChooseAddress(InterfaceAddresses(), config.network.interfaces));
  }
  endpoint.port = 0;
  return endpoint;
}

absl::StatusOr<std::unique_ptr<TcpListener>> TryToListen(const Config& config, const Endpoint& rendezvous) {
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, OwnEndpoint(config, rendezvous));
  return TcpListener::Start(endpoint);
}

// Opens the listener to which other ranks connect for control messages and data, and stores its address in `self`. A
// rank with children in the control tree fails if it cannot listen. Other ranks return nullptr instead, because most
// jobs exchange no data over TCP; a job that does reports the error later.
absl::StatusOr<std::unique_ptr<TcpListener>> Listen(const Config& config, const Endpoint& rendezvous, Member* self) {
  absl::StatusOr<std::unique_ptr<TcpListener>> listener = TryToListen(config, rendezvous);
  if (!listener.ok() && HasControlChildren(config.job.rank, config.job.size)) return listener.status();
  if (!listener.ok()) {
    Log(LogLevel::kInfo, config.job.rank, absl::StrCat("no messages over TCP: ", listener.status().message()));
    return nullptr;
  }
  self->tcp_address = (*listener)->endpoint().address;
  self->tcp_port = (*listener)->endpoint().port;
  return listener;
}

// What rank 0 has opened so that the other ranks can join.
struct Host {
  std::unique_ptr<RendezvousServer> server;
  std::unique_ptr<TcpListener> tcp_listener;
};

absl::StatusOr<Host> OpenRendezvous(const Config& config, const Endpoint& endpoint, const std::string& secret,
                                    JoinClaim claim) {
  RONDA_RETURN_IF_ERROR(CheckSecret(endpoint, secret));
  RONDA_ASSIGN_OR_RETURN(const std::string job_id, JobIdOf(config.job));
  Host host;
  RONDA_ASSIGN_OR_RETURN(host.tcp_listener, Listen(config, endpoint, &claim.member));
  RONDA_ASSIGN_OR_RETURN(host.server, RendezvousServer::Start({.plugin = config.network.plugin,
                                                               .endpoint = endpoint,
                                                               .secret = secret,
                                                               .job_id = job_id,
                                                               .claim = std::move(claim),
                                                               .timeout = config.tunables.start_timeout}));
  return host;
}

void LogDifferences(const MemberList& member_list) {
  for (const std::string& difference : DescribeDifferences(member_list.members)) {
    Log(LogLevel::kWarning, kCoordinatorRank, absl::StrCat("ranks have different settings: ", difference));
  }
}

absl::StatusOr<RendezvousResult> AwaitOthers(Host host, std::string secret) {
  RONDA_ASSIGN_OR_RETURN(MemberList member_list, host.server->Await());
  LogDifferences(member_list);
  return RendezvousResult{
      .member_list = std::move(member_list), .secret = std::move(secret), .tcp_listener = std::move(host.tcp_listener)};
}

absl::StatusOr<RendezvousResult> JoinAt(const Config& config, RendezvousClientOptions options) {
  RONDA_RETURN_IF_ERROR(CheckSecret(options.endpoint, options.secret));
  options.plugin = config.network.plugin;
  options.timeout = config.tunables.start_timeout;
  RendezvousResult result;
  RONDA_ASSIGN_OR_RETURN(result.tcp_listener, Listen(config, options.endpoint, &options.claim.member));
  RONDA_ASSIGN_OR_RETURN(result.member_list, JoinRendezvous(options));
  result.secret = std::move(options.secret);
  return result;
}

// Returns the address at which rank 0 of a job that MPI started accepts the other ranks.
absl::StatusOr<Endpoint> ChooseRendezvousAddress(const Config& config) {
  if (config.job.local_size == config.job.size) return ResolveEndpoint(kLoopback, 0);
  return ChooseAddress(InterfaceAddresses(), config.network.interfaces);
}

absl::StatusOr<Host> OpenAnywhere(const Config& config, JoinClaim claim, v1::MeetingPoint* point) {
  RONDA_ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kSecretBytes));
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, ChooseRendezvousAddress(config));
  RONDA_ASSIGN_OR_RETURN(Host host, OpenRendezvous(config, endpoint, secret, std::move(claim)));
  point->set_address(endpoint.address);
  point->set_port(host.server->port());
  point->set_secret(secret);
  return host;
}

// Joins the other ranks through MPI messages, without any network address.
absl::StatusOr<RendezvousResult> RendezvousByMessages(const Config& config, MpiSession& session, JoinClaim claim) {
  std::vector<RankId> all(static_cast<size_t>(config.job.size));
  std::iota(all.begin(), all.end(), 0);
  RONDA_ASSIGN_OR_RETURN(const std::unique_ptr<PointToPoint> messages, session.Connect(all, kRendezvousTag));
  RONDA_ASSIGN_OR_RETURN(std::string job_id, JobIdOf(config.job));
  MessageRendezvous rendezvous(
      *messages, {.job_id = std::move(job_id), .claim = std::move(claim), .timeout = config.tunables.start_timeout});
  absl::StatusOr<MemberList> member_list = rendezvous.Run();
  if (!member_list.ok()) {
    // Must come before the unfinished transfers are destroyed, so that MPI no longer uses their buffers.
    session.LeaveWithoutEnd();
    return member_list.status();
  }
  if (config.job.rank == kCoordinatorRank) {
    LogDifferences(*member_list);
    Log(LogLevel::kInfo, kCoordinatorRank, "control messages go over MPI, as RONDA_CONTROL says");
  }
  RendezvousResult result;
  result.member_list = *std::move(member_list);
  result.control = NetworkSettings::Control::kMpi;
  return result;
}

absl::StatusOr<RendezvousResult> InviteByMessages(const Config& config, MpiSession& session, JoinClaim claim) {
  v1::MeetingPoint point;
  point.set_messages(true);
  RONDA_RETURN_IF_ERROR(session.Broadcast(point.SerializeAsString()).status());
  return RendezvousByMessages(config, session, std::move(claim));
}

absl::StatusOr<RendezvousResult> InviteThroughMpi(const Config& config, MpiSession& session, JoinClaim claim) {
  v1::MeetingPoint point;
  absl::StatusOr<Host> host = OpenAnywhere(config, claim, &point);
  // Sends `point` even if `host` is an error, because the other ranks wait for it.
  if (!host.ok()) point.set_error(ToString(claim.member.peer) + ": " + std::string(host.status().message()));
  RONDA_RETURN_IF_ERROR(session.Broadcast(point.SerializeAsString()).status());
  if (!host.ok()) return host.status();
  return AwaitOthers(*std::move(host), point.secret());
}

absl::StatusOr<RendezvousResult> FollowThroughMpi(const Config& config, MpiSession& session, JoinClaim claim) {
  RONDA_ASSIGN_OR_RETURN(const std::string text, session.Broadcast(""));
  v1::MeetingPoint point;
  if (!point.ParseFromString(text)) return absl::InternalError("rank 0 broadcast no address through MPI");
  if (!point.error().empty()) return absl::FailedPreconditionError(point.error());
  if (point.messages()) return RendezvousByMessages(config, session, std::move(claim));
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, ResolveEndpoint(point.address(), point.port()));
  return JoinAt(
      config,
      {.endpoint = endpoint, .secret = point.secret(), .claim = std::move(claim), .timeout = {}, .advice = kMpiAdvice});
}

// Resolves the name of rank 0's host.
absl::StatusOr<Endpoint> LookUpMaster(const Config& config) {
  constexpr absl::Duration kPause = absl::Milliseconds(200);
  const absl::Time deadline = SteadyNow() + config.tunables.start_timeout;
  for (;;) {
    absl::StatusOr<Endpoint> endpoint = ResolveEndpoint(config.job.master_address, config.job.master_port);
    const bool may_appear = config.job.is_pod && absl::IsNotFound(endpoint.status());
    if (!may_appear || SteadyNow() + kPause > deadline) return endpoint;
    absl::SleepFor(kPause);
  }
}

// Returns the endpoint at which rank 0 listens.
absl::StatusOr<Endpoint> ResolveMaster(const Config& config) {
  absl::StatusOr<Endpoint> endpoint = LookUpMaster(config);
  if (!endpoint.ok() || config.job.IsOnOneHost()) return endpoint;
  return BeyondLoopback(*std::move(endpoint), config.network.interfaces);
}

}  // namespace

absl::StatusOr<RendezvousResult> RendezvousAtAddress(const Config& config, absl::string_view mpi_library) {
  const JobEnvironment& job = config.job;
  RONDA_ASSIGN_OR_RETURN(const Endpoint endpoint, ResolveMaster(config));
  JoinClaim claim = ClaimOf(config, mpi_library);
  if (job.rank != kCoordinatorRank) {
    return JoinAt(config, {.endpoint = endpoint, .secret = job.job_secret, .claim = std::move(claim)});
  }
  RONDA_ASSIGN_OR_RETURN(Host host, OpenRendezvous(config, endpoint, job.job_secret, std::move(claim)));
  return AwaitOthers(std::move(host), job.job_secret);
}

absl::StatusOr<RendezvousResult> RendezvousThroughMpi(const Config& config, MpiSession& session) {
  JoinClaim claim = ClaimOf(config, session.library());
  if (config.job.rank != kCoordinatorRank) return FollowThroughMpi(config, session, std::move(claim));
  return config.network.control == NetworkSettings::Control::kMpi ? InviteByMessages(config, session, std::move(claim))
                                                                  : InviteThroughMpi(config, session, std::move(claim));
}

}  // namespace ronda
