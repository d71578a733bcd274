// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/host_backends.h"

#include <list>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/collectives/transport.h"
#include "runtime/control/messages/message_control_plane.h"
#include "runtime/control/shm/shm_control_plane.h"
#include "runtime/net/endpoint.h"
#include "runtime/net/fork_guard.h"
#include "runtime/shm/shm_world.h"
#include "runtime/tcp/tcp_mesh.h"

namespace ronda {
namespace {

using MessageEnds = std::vector<std::unique_ptr<PointToPoint>>;
using MpiUse = MpiEnvironment::Use;

// The tags of the groups of ranks that exchange messages. Ranks with local rank i form the group with the tag
// kFirstAcrossTag + i.
constexpr int kFlatTag = 0;
constexpr int kControlTag = 1;
constexpr int kFirstAcrossTag = 2;

bool AsksForMessages(absl::string_view backend) {
  return !backend.empty() && (MayNeed(backend, Carrier::Needs::kMpi) || MayNeed(backend, Carrier::Needs::kAddress));
}

absl::Status CheckMpi(const FoundJob& job) {
  if (job.settings.mpi == MpiUse::kNever) return absl::FailedPreconditionError("RONDA_MPI=0 forbids MPI");
  if (!job.config.job.mpi.IsUsable()) {
    return absl::FailedPreconditionError("no launcher of MPI has started the ranks");
  }
  // An MPI launcher's variables may be set even if MPI is not installed, for example under srun. The rendezvous has
  // checked that all ranks have the same MPI, so the result is the same on all ranks.
  RONDA_RETURN_IF_ERROR(MpiSession::Library(MpiOptions(job.config.job)).status());
  const bool is_asked_for = job.settings.mpi == MpiUse::kAlways || AsksForMessages(job.settings.backend);
  if (job.hosts.hosts.size() > 1 || is_asked_for) return absl::OkStatus();
  return absl::FailedPreconditionError("on one host it is used with RONDA_MPI=1 only");
}

absl::StatusOr<MessageEnds> ConnectMpi(const FoundJob& job, const std::vector<MessageGroup>& groups,
                                       const std::function<absl::Status()>&) {
  MessageEnds ends;
  for (const MessageGroup& group : groups) {
    RONDA_ASSIGN_OR_RETURN(ends.emplace_back(), job.mpi->Connect(group.ranks, group.tag));
  }
  return ends;
}

absl::Status CheckTcp(const FoundJob& job) {
  if (job.rendezvous.control == NetworkSettings::Control::kMpi) {
    return absl::FailedPreconditionError("RONDA_CONTROL=mpi leaves the ranks no network but MPI's");
  }
  for (const Member& member : job.rendezvous.member_list.members) {
    if (member.tcp_port != 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(member.peer), " listens nowhere for data; RONDA_LOG_LEVEL=info there says why"));
  }
  if (job.hosts.hosts.size() > 1 || AsksForMessages(job.settings.backend)) return absl::OkStatus();
  return absl::FailedPreconditionError("on one host it is used with RONDA_BACKEND=tcp only");
}

TcpMeshOptions MeshOptions(const FoundJob& job) {
  return {.job = {.job_id = job.rendezvous.member_list.job_id, .secret = job.rendezvous.secret},
          .rank = job.topology.rank,
          .peers = job.peers,
          .endpoints = std::vector<Endpoint>(job.peers.size()),
          .timeout = job.config.tunables.start_timeout};
}

// Returns the address at which `rank` listens.
absl::StatusOr<Endpoint> EndpointOf(const FoundJob& job, RankId rank) {
  const Member& member = job.rendezvous.member_list.members[static_cast<size_t>(rank)];
  RONDA_ASSIGN_OR_RETURN(Endpoint endpoint, ResolveEndpoint(member.tcp_address, member.tcp_port));
  RONDA_RETURN_IF_ERROR(CheckSecret(endpoint, job.rendezvous.secret));
  return endpoint;
}

// REQUIRES: CheckTcp(job) is OK.
absl::StatusOr<MessageEnds> ConnectTcpGroups(const FoundJob& job, const std::vector<MessageGroup>& groups,
                                             const std::function<absl::Status()>& job_failure) {
  TcpMeshOptions mesh = MeshOptions(job);
  mesh.job_failure = job_failure;
  for (const Peer& peer : job.peers) {
    RONDA_ASSIGN_OR_RETURN(mesh.endpoints[static_cast<size_t>(peer.rank)], EndpointOf(job, peer.rank));
  }
  std::vector<TcpLevel> levels;
  levels.reserve(groups.size());
  for (const MessageGroup& group : groups) {
    levels.push_back({.number = static_cast<uint32_t>(group.tag), .ranks = group.ranks});
  }
  return ConnectTcp(*job.rendezvous.tcp_listener, mesh, levels);
}

absl::Status CheckCarrier(const HostBackend& backend, const HostSituation& situation) {
  const auto it = situation.carriers.find(backend.carrier->name);
  return it == situation.carriers.end() ? absl::OkStatus() : it->second;
}

std::vector<RankId> RanksOf(const std::vector<Peer>& peers) {
  std::vector<RankId> ranks;
  ranks.reserve(peers.size());
  for (const Peer& peer : peers) ranks.push_back(peer.rank);
  return ranks;
}

std::unique_ptr<Communicator> MakeMessageCommunicator(const FoundJob& job, std::unique_ptr<PointToPoint> messages,
                                                      const std::vector<RankId>& ranks,
                                                      MessageCommunicator::Options options) {
  options.messages = std::move(messages);
  for (const RankId rank : ranks) options.peers.push_back(job.peers[static_cast<size_t>(rank)]);
  return std::make_unique<MessageCommunicator>(std::move(options));
}

// Connects ranks on one host that exchange data over the backend's carrier, and control messages through shared memory.
absl::StatusOr<Transport> ConnectMessagesOnThisHost(const HostBackend& backend, const FoundJob& job) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmWorld> world,
                         ShmWorld::Connect(ShmOptions(job.config, job.rendezvous.member_list.job_id, job.topology)));
  const std::vector<RankId>& all = job.hosts.hosts.front();
  absl::StatusOr<MessageEnds> messages =
      backend.carrier->connect(job, {{.tag = kFlatTag, .ranks = all}}, [&] { return world->failure(); });
  if (!messages.ok()) {
    // Otherwise the other ranks would wait for this rank, and never learn why it failed.
    world->Fail(messages.status());
    return messages.status();
  }
  auto communicator = MakeMessageCommunicator(
      job, std::move(messages->front()), all,
      {.flights = world->flights(), .job_failure = [world = world.get()] { return world->failure(); }});
  return Transport{.control = std::make_unique<ShmControlPlane>(world),
                   .communicator = std::move(communicator),
                   .flights = world->flights()};
}

// Connects the ranks of a job that runs on several hosts.
class HostsConnector {
 public:
  enum class Levels { kFlat, kTwo };

  HostsConnector(const HostBackend& backend, Levels levels, FoundJob& job)
      : backend_(backend), levels_(levels), job_(job), self_(PositionOf(job.hosts, job.topology.rank)) {}

  absl::StatusOr<Transport> Run();

 private:
  const std::vector<RankId>& RanksHere() const { return job_.hosts.hosts[static_cast<size_t>(self_.host)]; }

  absl::Status JoinMemoryHere();
  MessageControlPlaneOptions ControlOptions() const;
  absl::Status ConnectTcpControl();
  absl::Status ConnectMpiControl();
  std::vector<MessageGroup> Groups() const;
  absl::StatusOr<MessageEnds> ConnectGroups(const std::vector<MessageGroup>& groups) const;
  std::unique_ptr<Communicator> MakeCommunicator(std::unique_ptr<PointToPoint> messages,
                                                 const std::vector<RankId>& ranks) const;
  void MakeCommunicators(MessageEnds ends, const std::vector<MessageGroup>& groups, Transport* transport) const;

  const HostBackend& backend_;
  const Levels levels_;
  FoundJob& job_;
  const HostPosition self_;
  std::shared_ptr<ShmWorld> here_;
  std::unique_ptr<ControlPlane> control_;
};

// Connects this host's shared memory, even if this rank is alone on its host.
absl::Status HostsConnector::JoinMemoryHere() {
  const std::string& hostname = job_.topology.hostname;
  ShmWorld::Options options =
      ShmOptions(job_.config, absl::StrCat(job_.rendezvous.member_list.job_id, "-", self_.host), job_.topology);
  options.rank = self_.local_rank;
  options.size = static_cast<int>(RanksHere().size());
  options.ranks = RanksHere();
  options.job_size = job_.topology.size;
  absl::StatusOr<std::shared_ptr<ShmWorld>> world = ShmWorld::Connect(options);
  if (!world.ok()) {
    return absl::Status(world.status().code(),
                        absl::StrCat("on host ", hostname, ", where ", NameRanks(RanksHere()),
                                     " of the job are numbered from 0: ", world.status().message()));
  }
  here_ = *std::move(world);
  return absl::OkStatus();
}

MessageControlPlaneOptions HostsConnector::ControlOptions() const {
  return {.rank = job_.topology.rank,
          .peers = job_.peers,
          .job_id = job_.rendezvous.member_list.job_id,
          .start_timeout = job_.config.tunables.start_timeout,
          .heartbeat = job_.settings.heartbeat,
          .heartbeat_timeout = job_.settings.heartbeat_timeout,
          .flights = here_->flights(),
          .on_failure = [here = here_](const absl::Status& failure) { here->FailWith(failure); },
          .on_depart = [here = here_] { here->Depart(); },
          .on_exit = [here = here_] { here->AnnounceExit(); },
          .cores = here_->MaySpin() ? PollLimit::Cores::kSuffice : PollLimit::Cores::kAreShared};
}

absl::Status HostsConnector::ConnectTcpControl() {
  MessageControlPlaneOptions options = ControlOptions();
  const ControlTree tree = {.size = static_cast<int>(job_.peers.size()), .fan_out = options.fan_out};
  TcpMeshOptions mesh = MeshOptions(job_);
  mesh.purpose = "control messages";
  // A forked child may outlive its rank, and must not keep the rank's sockets open, because other hosts would then not
  // notice the rank's death.
  const auto guards = std::make_shared<std::list<ForkGuard>>();
  if (const TcpListener* const listener = job_.rendezvous.tcp_listener.get(); listener != nullptr) {
    guards->emplace_back(listener->endpoint());
  }
  if (options.rank != kCoordinatorRank) {
    const RankId parent = tree.Parent(options.rank);
    RONDA_ASSIGN_OR_RETURN(mesh.endpoints[static_cast<size_t>(parent)], EndpointOf(job_, parent));
    guards->emplace_back(mesh.endpoints[static_cast<size_t>(parent)]);
  }
  TcpPartners partners = ConnectTcpPartners(
      job_.rendezvous.tcp_listener.get(), mesh,
      {.number = kControlTag, .ranks = RanksOf(job_.peers), .partners = tree.Neighbours(options.rank)});
  options.messages = std::move(partners.messages);
  options.absent = std::move(partners.absent);
  options.absence = std::move(partners.absence);
  options.kept = guards;
  RONDA_ASSIGN_OR_RETURN(control_, ConnectMessageControlPlane(std::move(options)));
  return absl::OkStatus();
}

absl::Status HostsConnector::ConnectMpiControl() {
  MessageControlPlaneOptions options = ControlOptions();
  RONDA_ASSIGN_OR_RETURN(options.messages, job_.mpi->Connect(RanksOf(job_.peers), kControlTag));
  options.fan_out = kMpiControlFanOut;
  options.abandon_messages = [session = job_.mpi] { session->LeaveWithoutEnd(); };
  RONDA_ASSIGN_OR_RETURN(control_, ConnectMessageControlPlane(std::move(options)));
  return absl::OkStatus();
}

// Returns the group of all ranks. With two levels, also returns the group of all ranks with this rank's local rank,
// provided that every host has such a rank.
std::vector<MessageGroup> HostsConnector::Groups() const {
  std::vector<MessageGroup> groups = {{.tag = kFlatTag, .ranks = RanksOf(job_.peers)}};
  if (levels_ == Levels::kTwo && self_.local_rank < SizesOf(job_.hosts).least) {
    groups.push_back({.tag = kFirstAcrossTag + self_.local_rank, .ranks = RanksAt(job_.hosts, self_.local_rank)});
  }
  return groups;
}

absl::StatusOr<MessageEnds> HostsConnector::ConnectGroups(const std::vector<MessageGroup>& groups) const {
  const ControlPlane* const control = control_.get();  // nullptr if control messages will go over MPI
  return backend_.carrier->connect(job_, groups,
                                   [control] { return control == nullptr ? absl::OkStatus() : control->failure(); });
}

std::unique_ptr<Communicator> HostsConnector::MakeCommunicator(std::unique_ptr<PointToPoint> messages,
                                                               const std::vector<RankId>& ranks) const {
  // The control plane outlives the communicator.
  return MakeMessageCommunicator(job_, std::move(messages), ranks,
                                 {.flights = here_->flights(),
                                  .job_failure = [control = control_.get()] { return control->failure(); },
                                  .ranks_on_host = static_cast<int>(RanksHere().size())});
}

void HostsConnector::MakeCommunicators(MessageEnds ends, const std::vector<MessageGroup>& groups,
                                       Transport* transport) const {
  transport->communicator = MakeCommunicator(std::move(ends[0]), groups[0].ranks);
  if (levels_ == Levels::kFlat) return;
  std::unique_ptr<Communicator> across;
  if (groups.size() > 1) across = MakeCommunicator(std::move(ends[1]), groups[1].ranks);
  auto hierarchical = std::make_unique<HierarchicalCommunicator>(
      HierarchicalCommunicator::Options{.rank = job_.topology.rank,
                                        .hosts = job_.hosts,
                                        .local = std::make_unique<ShmCommunicator>(here_),
                                        .across = std::move(across),
                                        .flat = std::move(transport->communicator)});
  transport->levels = hierarchical->levels();
  transport->communicator = std::move(hierarchical);
}

absl::StatusOr<Transport> HostsConnector::Run() {
  RONDA_RETURN_IF_ERROR(JoinMemoryHere());
  const bool is_control_mpi = job_.rendezvous.control == NetworkSettings::Control::kMpi;
  // Connects the TCP control plane before MPI: it reports ranks that have failed, while MPI would wait for them for
  // ever.
  if (!is_control_mpi) RONDA_RETURN_IF_ERROR(ConnectTcpControl());
  const std::vector<MessageGroup> groups = Groups();
  absl::StatusOr<MessageEnds> ends = ConnectGroups(groups);
  if (!ends.ok()) {
    // Otherwise the other ranks would take this rank's disconnection for a regular departure, and would wait for it.
    if (control_ != nullptr) control_->Fail(ends.status());
    return ends.status();
  }
  // MPI's connect calls block until the other ranks connect, and a blocked rank does not forward control messages. So
  // connects all groups before the first control message.
  if (is_control_mpi) RONDA_RETURN_IF_ERROR(ConnectMpiControl());
  Transport transport = {.flights = here_->flights()};
  MakeCommunicators(*std::move(ends), groups, &transport);
  transport.control = std::move(control_);
  return transport;
}

constexpr Carrier kMpiCarrier = {
    .name = "mpi", .title = "MPI", .needs = Carrier::Needs::kMpi, .check = CheckMpi, .connect = ConnectMpi};
constexpr Carrier kTcpCarrier = {
    .name = "tcp", .title = "TCP", .needs = Carrier::Needs::kAddress, .check = CheckTcp, .connect = ConnectTcpGroups};

// Rates shared memory, which needs all ranks on one host.
absl::StatusOr<std::string> RateShm(const HostBackend&, const HostSituation& situation) {
  if (situation.hosts == 1) return "all ranks share a host's memory";
  return absl::FailedPreconditionError(absl::StrCat("the ranks are on ", situation.hosts, " hosts"));
}

absl::StatusOr<Transport> ConnectShm(const HostBackend&, FoundJob& job) {
  return ConnectShmTransport(ShmOptions(job.config, job.rendezvous.member_list.job_id, job.topology));
}

// Rates a backend with shared memory on each host, and a carrier between hosts.
absl::StatusOr<std::string> RateTwoLevels(const HostBackend& backend, const HostSituation& situation) {
  if (situation.hosts == 1) return absl::FailedPreconditionError("all ranks are on one host");
  if (situation.most_ranks_on_a_host == 1) return absl::FailedPreconditionError("no two ranks share a host");
  RONDA_RETURN_IF_ERROR(CheckCarrier(backend, situation));
  return absl::StrCat("shared memory on each of ", situation.hosts, " hosts, ", backend.carrier->title, " across");
}

absl::StatusOr<Transport> ConnectTwoLevels(const HostBackend& backend, FoundJob& job) {
  return HostsConnector(backend, HostsConnector::Levels::kTwo, job).Run();
}

// Rates a backend that uses its carrier between all ranks.
absl::StatusOr<std::string> RateMessages(const HostBackend& backend, const HostSituation& situation) {
  RONDA_RETURN_IF_ERROR(CheckCarrier(backend, situation));
  return absl::StrCat(backend.carrier->title, " between all ranks");
}

absl::StatusOr<Transport> ConnectMessages(const HostBackend& backend, FoundJob& job) {
  if (job.hosts.hosts.size() == 1) return ConnectMessagesOnThisHost(backend, job);
  return HostsConnector(backend, HostsConnector::Levels::kFlat, job).Run();
}

// Two levels score higher than one. MPI scores higher than TCP, because it supports more networks.
constexpr HostBackend kHostBackends[] = {
    {.name = "shm",
     .help = "ranks on one host, through shared memory",
     .score = 300,
     .rate = RateShm,
     .connect = ConnectShm},
    {.name = "hierarchical-mpi",
     .family = "hierarchical",
     .help = "shared memory on each host, MPI between hosts",
     .score = 200,
     .carrier = &kMpiCarrier,
     .rate = RateTwoLevels,
     .connect = ConnectTwoLevels},
    {.name = "hierarchical-tcp",
     .family = "hierarchical",
     .help = "shared memory on each host, TCP between hosts",
     .score = 150,
     .carrier = &kTcpCarrier,
     .rate = RateTwoLevels,
     .connect = ConnectTwoLevels},
    {.name = "mpi",
     .help = "ranks on several hosts, under Open MPI's or MPICH's mpirun",
     .score = 100,
     .carrier = &kMpiCarrier,
     .rate = RateMessages,
     .connect = ConnectMessages},
    {.name = "tcp",
     .help = "ranks on several hosts, however they are started",
     .score = 50,
     .carrier = &kTcpCarrier,
     .rate = RateMessages,
     .connect = ConnectMessages},
};

}  // namespace

absl::Span<const HostBackend> HostBackends() { return kHostBackends; }

ShmWorld::Options ShmOptions(const Config& config, const std::string& job_id, const Topology& topology) {
  return {.job_id = job_id,
          .epoch = config.job.epoch,
          .rank = topology.rank,
          .size = topology.size,
          .hostname = topology.hostname,
          .connect_timeout = config.tunables.start_timeout,
          .control_timeout = config.tunables.stall_deadline};
}

MpiSession::Options MpiOptions(const JobEnvironment& job) {
  const bool is_mpich = job.mpi.launcher == MpiEnvironment::Launcher::kMpich;
  return {.flavor = is_mpich ? MpiFlavor::kMpich : MpiFlavor::kOpenMpi, .plugin = job.mpi.plugin};
}

}  // namespace ronda
