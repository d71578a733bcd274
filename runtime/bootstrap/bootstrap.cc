#include "runtime/bootstrap/bootstrap.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/bootstrap/backend_choice.h"
#include "runtime/bootstrap/device_backends.h"
#include "runtime/bootstrap/hosts_transport.h"
#include "runtime/bootstrap/meeting.h"
#include "runtime/bootstrap/mpi_farewell.h"
#include "runtime/bootstrap/rank_facts.h"
#include "runtime/bootstrap/tcp_data.h"
#include "runtime/bootstrap/this_host.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/control/shm/shm_control_plane.h"
#include "runtime/mpi/mpi_session.h"
#include "runtime/shm/shm_world.h"

namespace ronda {
namespace {

using MpiUse = MpiEnvironment::Use;

ShmWorld::Options OptionsOnThisHost(const Tunables& tunables, const std::string& job_id, const Topology& topology) {
  return {.job_id = job_id,
          .rank = topology.rank,
          .size = topology.size,
          .hostname = topology.hostname,
          .connect_timeout = tunables.start_timeout,
          .control_timeout = tunables.stall_deadline};
}

// Whether the value of RONDA_BACKEND asks for what ranks on one host do not need.
bool IsForMessages(absl::string_view backend) { return !backend.empty() && backend != Name(Backend::kShm); }

// Whether all ranks share a host, know a name for their shared memory, and need nothing else.
bool CanMeetInMemory(const Config& config) {
  const JobEnvironment& job = config.job;
  return !job.job_id.empty() && job.IsOnOneHost() && job.mpi.use != MpiUse::kAlways && !IsForMessages(config.backend);
}

absl::StatusOr<Job> MeetInMemory(const Config& config) {
  const JobEnvironment& job = config.job;
  Topology topology{.rank = job.rank,
                    .size = job.size,
                    .local_rank = job.local_rank.value_or(job.rank),
                    .local_size = job.size,
                    .hostname = HostName()};
  RONDA_ASSIGN_OR_RETURN(Transport transport,
                         ConnectShmTransport(OptionsOnThisHost(config.tunables, job.job_id, topology)));
  return Job{.topology = std::move(topology), .transport = std::move(transport)};
}

// A job whose ranks meet at rank 0, learn there who shares a host with whom, and choose a backend for that.
class Gathering {
 public:
  explicit Gathering(const Config& config) : config_(config) {}

  absl::StatusOr<Job> Run() {
    absl::StatusOr<Job> job = MeetAndConnect();
    // Its end would wait for ranks that may never come.
    if (!job.ok() && session_ != nullptr) session_->LeaveWithoutEnd();
    return job;
  }

 private:
  absl::StatusOr<Job> MeetAndConnect();
  absl::StatusOr<Meeting> Meet();
  absl::Status StartMpi();
  MpiSession::Options MpiOptions() const;
  std::string MpiLibrary() const;
  absl::Status MpiUsability(const ConnectionSettings& settings) const;
  absl::Status TcpUsability(const ConnectionSettings& settings, const Meeting& meeting) const;
  absl::StatusOr<Backend> Choose(const ConnectionSettings& settings, const Meeting& meeting) const;
  absl::StatusOr<Transport> Connect(Backend backend, const ConnectionSettings& settings, const Topology& topology,
                                    Meeting meeting);
  absl::StatusOr<Transport> ConnectMessagesOnThisHost(Backend backend, const Meeting& meeting,
                                                      ShmWorld::Options options);
  absl::StatusOr<std::unique_ptr<PointToPoint>> ConnectMessages(Backend backend, const Meeting& meeting,
                                                                const ShmWorld& world, absl::Duration timeout);

  const Config& config_;
  std::shared_ptr<MpiSession> session_;  // nullptr: MPI is not used
  HostMap hosts_;
  std::vector<Peer> peers_;  // by rank
};

MpiSession::Options Gathering::MpiOptions() const {
  const bool is_mpich = config_.job.mpi.launcher == MpiEnvironment::Launcher::kMpich;
  return {.flavor = is_mpich ? MpiFlavor::kMpich : MpiFlavor::kOpenMpi, .plugin = config_.job.mpi.plugin};
}

absl::Status Gathering::StartMpi() {
  const JobEnvironment& job = config_.job;
  RONDA_ASSIGN_OR_RETURN(session_, MpiSession::Start(MpiOptions()));
  if (session_->rank() == job.rank && session_->size() == job.size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      session_->library(), " takes this process for rank ", session_->rank(), " of ", session_->size(), ", but ",
      job.source, " for rank ", job.rank, " of ", job.size,
      ": start the job with this MPI's own mpirun (srun needs --mpi=pmix or --mpi=pmi2), and leave ranks as it says"));
}

// Which MPI this rank would use across hosts.
std::string Gathering::MpiLibrary() const {
  if (!config_.job.mpi.IsUsable() || config_.job.local_size == config_.job.size) return "";
  const absl::StatusOr<std::string> library = MpiSession::Library(MpiOptions());
  return library.ok() ? *library : std::string(library.status().message());
}

absl::StatusOr<Meeting> Gathering::Meet() {
  const bool is_control_mpi = config_.network.control == NetworkSettings::Control::kMpi;
  if (!config_.job.master_address.empty() && !is_control_mpi) return MeetAtMaster(config_, MpiLibrary());
  if (!config_.job.mpi.IsUsable()) {
    const std::string wish =
        is_control_mpi ? "RONDA_CONTROL=\"mpi\"" : absl::StrCat("RONDA_BACKEND=\"", config_.backend, "\"");
    return absl::FailedPreconditionError(absl::StrCat(
        wish,
        " needs MPI, but no launcher of MPI has started this process: start the job with rondarun --mpi or mpirun",
        is_control_mpi ? "" : "; for TCP set RONDA_MASTER_PORT to a port that is free, the same on every rank"));
  }
  RONDA_RETURN_IF_ERROR(StartMpi());
  return MeetThroughMpi(config_, *session_);
}

absl::Status Gathering::MpiUsability(const ConnectionSettings& settings) const {
  if (settings.mpi == MpiUse::kNever) return absl::FailedPreconditionError("RONDA_MPI=0 forbids MPI");
  if (!config_.job.mpi.IsUsable()) {
    return absl::FailedPreconditionError("no launcher of MPI has started the ranks");
  }
  // A launcher's variables may be there, as under srun, and no MPI. They have all said which they have, and agree.
  RONDA_RETURN_IF_ERROR(MpiSession::Library(MpiOptions()).status());
  const bool is_asked_for = settings.mpi == MpiUse::kAlways || IsForMessages(settings.backend);
  if (hosts_.hosts.size() > 1 || is_asked_for) return absl::OkStatus();
  return absl::FailedPreconditionError("on one host it is used with RONDA_MPI=1 only");
}

absl::Status Gathering::TcpUsability(const ConnectionSettings& settings, const Meeting& meeting) const {
  if (meeting.control == NetworkSettings::Control::kMpi) {
    return absl::FailedPreconditionError("RONDA_CONTROL=mpi leaves the ranks no network but MPI's");
  }
  for (const Member& member : meeting.membership.members) {
    if (member.data_port != 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(ToString(member.peer), " listens nowhere for data; RONDA_LOG_LEVEL=info there says why"));
  }
  if (hosts_.hosts.size() > 1 || IsForMessages(settings.backend)) return absl::OkStatus();
  return absl::FailedPreconditionError("on one host it is used with RONDA_BACKEND=tcp only");
}

absl::StatusOr<Backend> Gathering::Choose(const ConnectionSettings& settings, const Meeting& meeting) const {
  const std::vector<BackendRating> ratings = RateBackends({.hosts = static_cast<int>(hosts_.hosts.size()),
                                                           .most_ranks_on_a_host = SizesOf(hosts_).most,
                                                           .mpi = MpiUsability(settings),
                                                           .tcp = TcpUsability(settings, meeting)});
  const absl::StatusOr<Backend> backend = ChooseBackend(ratings, settings.backend);
  if (!backend.ok()) return backend;
  Log(LogLevel::kInfo, config_.job.rank,
      absl::StrCat("data goes over ", Name(*backend), settings.backend.empty() ? "" : ", as RONDA_BACKEND says",
                   "; of ", ToString(ratings)));
  return backend;
}

// Between all ranks, which share this host.
absl::StatusOr<std::unique_ptr<PointToPoint>> Gathering::ConnectMessages(Backend backend, const Meeting& meeting,
                                                                         const ShmWorld& world,
                                                                         absl::Duration timeout) {
  constexpr int kTag = 0;
  const std::vector<RankId>& all = hosts_.hosts.front();
  if (UsesMpi(backend)) return session_->Connect(all, kTag);
  RONDA_ASSIGN_OR_RETURN(
      auto levels,
      ConnectTcpData(meeting, {{.number = kTag, .ranks = all}},
                     {.rank = config_.job.rank, .timeout = timeout, .job_failure = [&] { return world.failure(); }}));
  return std::move(levels.front());
}

// Messages between ranks that share a host go through MPI or TCP, control messages through memory.
absl::StatusOr<Transport> Gathering::ConnectMessagesOnThisHost(Backend backend, const Meeting& meeting,
                                                               ShmWorld::Options options) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmWorld> world, ShmWorld::Connect(options));
  absl::StatusOr<std::unique_ptr<PointToPoint>> messages =
      ConnectMessages(backend, meeting, *world, options.connect_timeout);
  if (!messages.ok()) {
    // The others would wait for this rank, and not learn why it does not come.
    world->Fail(messages.status());
    return messages.status();
  }
  auto communicator = std::make_unique<MessageCommunicator>(
      MessageCommunicator::Options{.messages = *std::move(messages),
                                   .peers = peers_,
                                   .flights = world->flights(),
                                   .job_failure = [world = world.get()] { return world->failure(); }});
  return Transport{.control = std::make_unique<ShmControlPlane>(world),
                   .communicator = std::move(communicator),
                   .flights = world->flights()};
}

absl::StatusOr<Transport> Gathering::Connect(Backend backend, const ConnectionSettings& settings,
                                             const Topology& topology, Meeting meeting) {
  const Tunables& tunables = config_.tunables;
  if (hosts_.hosts.size() == 1) {
    ShmWorld::Options options = OptionsOnThisHost(tunables, meeting.membership.job_id, topology);
    return backend == Backend::kShm ? ConnectShmTransport(std::move(options))
                                    : ConnectMessagesOnThisHost(backend, meeting, std::move(options));
  }
  using Levels = HostsTransportOptions::Levels;
  using Carrier = HostsTransportOptions::Carrier;
  return ConnectHosts({.rank = topology.rank,
                       .peers = peers_,
                       .hosts = hosts_,
                       .meeting = std::move(meeting),
                       .levels = IsHierarchical(backend) ? Levels::kTwoLevels : Levels::kFlat,
                       .carrier = UsesMpi(backend) ? Carrier::kMpi : Carrier::kTcp,
                       .session = session_,
                       .connect_timeout = tunables.start_timeout,
                       .control_timeout = tunables.stall_deadline,
                       .heartbeat = settings.heartbeat,
                       .heartbeat_timeout = settings.heartbeat_timeout});
}

absl::StatusOr<Job> Gathering::MeetAndConnect() {
  RONDA_ASSIGN_OR_RETURN(Meeting meeting, Meet());
  const Membership& membership = meeting.membership;
  RONDA_ASSIGN_OR_RETURN(const ConnectionSettings settings, SettingsOf(membership.members.front()));
  hosts_ = {.hosts = HostsOf(membership)};
  for (const Member& member : membership.members) peers_.push_back(member.peer);
  Topology topology = TopologyOf(membership, config_.job.rank);
  RONDA_ASSIGN_OR_RETURN(const Backend backend, Choose(settings, meeting));
  const bool needs_mpi = UsesMpi(backend) || settings.mpi == MpiUse::kAlways;
  if (needs_mpi && session_ == nullptr) RONDA_RETURN_IF_ERROR(StartMpi());
  RONDA_ASSIGN_OR_RETURN(Transport transport, Connect(backend, settings, topology, std::move(meeting)));
  if (session_ != nullptr) {
    transport.departure = std::make_shared<const MpiFarewell>(std::move(session_), transport.control.get());
  }
  return Job{.topology = std::move(topology), .transport = std::move(transport)};
}

Job Alone() {
  Topology alone{.hostname = HostName()};
  Transport transport = CreateSelfTransport(alone.hostname);
  return {.topology = std::move(alone), .transport = std::move(transport)};
}

absl::StatusOr<Job> Connect(const Config& config) {
  if (config.job.size == 1) return Alone();
  return CanMeetInMemory(config) ? MeetInMemory(config) : Gathering(config).Run();
}

}  // namespace

absl::StatusOr<Job> Bootstrap(const Config& config) {
  RONDA_ASSIGN_OR_RETURN(Job job, Connect(config));
  job.transport.devices = DeviceBackends::Create(config.devices, job.topology.hostname);
  return job;
}

}  // namespace ronda
