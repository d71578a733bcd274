// SPDX-License-Identifier: Apache-2.0

#include "runtime/backends/job.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/backends/device_backends.h"
#include "runtime/backends/host_backends.h"
#include "runtime/backends/registry.h"
#include "runtime/base/logging.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/self/self_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"

namespace ronda {
namespace {

using MpiUse = MpiEnvironment::Use;

// Decides how a rank leaves MPI: through MPI_Finalize, in which all ranks wait for each other, or without it if the job
// has failed, because MPI_Finalize would wait for dead ranks. A Transport destroys this object before any other object
// that uses MPI.
class MpiDeparture {
 public:
  // `control` must outlive this object.
  MpiDeparture(std::shared_ptr<MpiSession> session, const ControlPlane* control)
      : session_(std::move(session)), control_(control) {}

  ~MpiDeparture() {
    if (!control_->failure().ok()) session_->LeaveWithoutEnd();
  }

  MpiDeparture(const MpiDeparture&) = delete;
  MpiDeparture& operator=(const MpiDeparture&) = delete;

 private:
  const std::shared_ptr<MpiSession> session_;
  const ControlPlane* const control_;
};

// Returns whether all ranks are on one host, and can name their shared memory.
bool ShareMemory(const JobEnvironment& job) { return !job.job_id.empty() && job.IsOnOneHost(); }

// Returns whether the ranks can connect through shared memory alone.
bool CanJoinInMemory(const Config& config) {
  const HostBackend* const wanted = FindHostBackend(config.backend);
  const bool is_for_memory = config.backend.empty() || (wanted != nullptr && wanted->carrier == nullptr);
  return ShareMemory(config.job) && config.job.mpi.use != MpiUse::kAlways && is_for_memory;
}

// Returns whether the ranks find each other at the master address. rondarun sets it for every job, but ranks on one
// host only open a port for a backend that needs it.
bool MeetsAtAddress(const Config& config) {
  if (config.job.master_address.empty() || config.network.control == NetworkSettings::Control::kMpi) return false;
  const bool asks_for_one = !config.backend.empty() && MayNeed(config.backend, Carrier::Needs::kAddress);
  return asks_for_one || !ShareMemory(config.job);
}

absl::StatusOr<ConnectedJob> JoinInMemory(const Config& config) {
  const JobEnvironment& job = config.job;
  Topology topology{.rank = job.rank,
                    .size = job.size,
                    .local_rank = job.local_rank.value_or(job.rank),
                    .local_size = job.size,
                    .hostname = HostName()};
  RONDA_ASSIGN_OR_RETURN(Transport transport, ConnectShmTransport(ShmOptions(config, job.job_id, topology)));
  transport.job_id = NameInEpoch(job.job_id, job.epoch);
  return ConnectedJob{.topology = std::move(topology), .transport = std::move(transport)};
}

// Joins a job through the rendezvous at rank 0, then connects the backend that suits the ranks' hosts.
class Joining {
 public:
  explicit Joining(const Config& config) : job_{.config = config} {}

  absl::StatusOr<ConnectedJob> Run() {
    absl::StatusOr<ConnectedJob> joined = FindAndConnect();
    // After an error, does not call MPI_Finalize, which would wait for ranks that may never call it.
    if (!joined.ok() && job_.mpi != nullptr) job_.mpi->LeaveWithoutEnd();
    return joined;
  }

 private:
  absl::StatusOr<ConnectedJob> FindAndConnect();
  absl::StatusOr<RendezvousResult> Find();
  absl::Status StartMpi();
  std::string MpiLibrary() const;
  absl::StatusOr<const HostBackend*> Choose() const;

  FoundJob job_;
};

absl::Status Joining::StartMpi() {
  const JobEnvironment& job = job_.config.job;
  RONDA_ASSIGN_OR_RETURN(job_.mpi, MpiSession::Start(MpiOptions(job)));
  if (job_.mpi->rank() == job.rank && job_.mpi->size() == job.size) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      job_.mpi->library(), " takes this process for rank ", job_.mpi->rank(), " of ", job_.mpi->size(), ", but ",
      job.source, " for rank ", job.rank, " of ", job.size,
      ": start the job with this MPI's own mpirun (srun needs --mpi=pmix or --mpi=pmi2), and leave ranks as it says"));
}

// Returns the MPI library that this rank would use between hosts.
std::string Joining::MpiLibrary() const {
  const JobEnvironment& job = job_.config.job;
  if (!job.mpi.IsUsable() || job.local_size == job.size) return "";
  const absl::StatusOr<std::string> library = MpiSession::Library(MpiOptions(job));
  return library.ok() ? *library : std::string(library.status().message());
}

absl::StatusOr<RendezvousResult> Joining::Find() {
  const Config& config = job_.config;
  if (MeetsAtAddress(config)) return RendezvousAtAddress(config, MpiLibrary());
  if (!config.job.mpi.IsUsable()) {
    const bool is_control_mpi = config.network.control == NetworkSettings::Control::kMpi;
    const std::string setting =
        is_control_mpi ? "RONDA_CONTROL=\"mpi\"" : absl::StrCat("RONDA_BACKEND=\"", config.backend, "\"");
    return absl::FailedPreconditionError(absl::StrCat(
        setting,
        " needs MPI, but no launcher of MPI has started this process: start the job with rondarun --mpi or mpirun",
        is_control_mpi ? "" : "; for TCP set RONDA_MASTER_PORT to a port that is free, the same on every rank"));
  }
  RONDA_RETURN_IF_ERROR(StartMpi());
  return RendezvousThroughMpi(config, *job_.mpi);
}

absl::StatusOr<const HostBackend*> Joining::Choose() const {
  HostSituation situation = {.hosts = static_cast<int>(job_.hosts.hosts.size()),
                             .most_ranks_on_a_host = SizesOf(job_.hosts).most};
  for (const HostBackend& backend : HostBackends()) {
    if (backend.carrier == nullptr || situation.carriers.contains(backend.carrier->name)) continue;
    situation.carriers[backend.carrier->name] = backend.carrier->check(job_);
  }
  const std::string& wanted = job_.settings.backend;
  const std::vector<BackendRating> ratings = RateHostBackends(situation);
  RONDA_ASSIGN_OR_RETURN(const absl::string_view name, ChooseHostBackend(ratings, wanted));
  Log(LogLevel::kInfo, job_.config.job.rank,
      absl::StrCat("data goes over ", name, wanted.empty() ? "" : ", as RONDA_BACKEND says", "; of ",
                   ToString(ratings)));
  return FindHostBackend(name);
}

absl::StatusOr<ConnectedJob> Joining::FindAndConnect() {
  RONDA_ASSIGN_OR_RETURN(job_.rendezvous, Find());
  const MemberList& member_list = job_.rendezvous.member_list;
  RONDA_ASSIGN_OR_RETURN(job_.settings, SettingsOf(member_list.members.front()));
  job_.hosts = {.hosts = HostsOf(member_list)};
  for (const Member& member : member_list.members) job_.peers.push_back(member.peer);
  job_.topology = TopologyOf(member_list, job_.config.job.rank);
  RONDA_ASSIGN_OR_RETURN(const HostBackend* const backend, Choose());
  const bool goes_over_mpi = backend->carrier != nullptr && backend->carrier->needs == Carrier::Needs::kMpi;
  const bool needs_mpi = goes_over_mpi || job_.settings.mpi == MpiUse::kAlways;
  if (needs_mpi && job_.mpi == nullptr) RONDA_RETURN_IF_ERROR(StartMpi());
  RONDA_ASSIGN_OR_RETURN(Transport transport, backend->connect(*backend, job_));
  if (job_.mpi != nullptr) {
    transport.departure = std::make_shared<const MpiDeparture>(std::move(job_.mpi), transport.control.get());
  }
  transport.job_id = NameInEpoch(member_list.job_id, job_.config.job.epoch);
  return ConnectedJob{.topology = std::move(job_.topology), .transport = std::move(transport)};
}

ConnectedJob Alone(const JobEnvironment& job) {
  Topology alone{.hostname = HostName()};
  Transport transport = CreateSelfTransport(alone.hostname);
  transport.job_id = NameInEpoch(job.job_id, job.epoch);
  return {.topology = std::move(alone), .transport = std::move(transport)};
}

absl::StatusOr<ConnectedJob> Connect(const Config& config) {
  if (config.job.size == 1) return Alone(config.job);
  return CanJoinInMemory(config) ? JoinInMemory(config) : Joining(config).Run();
}

}  // namespace

absl::StatusOr<ConnectedJob> ConnectJob(const Config& config) {
  RONDA_ASSIGN_OR_RETURN(ConnectedJob job, Connect(config));
  job.transport.devices = DeviceBackends::Create(config.devices, job.topology.hostname);
  return job;
}

}  // namespace ronda
