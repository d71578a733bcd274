#include "runtime/bootstrap/hosts_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "runtime/collectives/mpi/mpi_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/control/grpc/grpc_control_plane.h"
#include "runtime/control/rendezvous/rank_names.h"
#include "runtime/shm/shm_world.h"

namespace ronda {
namespace {

// Of MpiSession::Connect. Ranks with the same place on their hosts share the one of their place behind it.
constexpr int kFlatTag = 0;
constexpr int kFirstAcrossTag = 1;

// The control plane across hosts, for ranks that are also in the shared memory of their host.
class HostsControlPlane final : public ControlPlane {
 public:
  HostsControlPlane(std::unique_ptr<ControlPlane> across, std::shared_ptr<ShmWorld> here)
      : here_(std::move(here)), across_(std::move(across)) {}

  absl::Status SendToCoordinator(absl::string_view payload) override { return across_->SendToCoordinator(payload); }
  absl::Status Broadcast(absl::string_view payload) override { return across_->Broadcast(payload); }
  absl::StatusOr<Inbox> Receive() override { return across_->Receive(); }
  void Wait(absl::Time deadline) override { across_->Wait(deadline); }
  void Wake() override { across_->Wake(); }
  void CallOff(uint64_t schedule) override { across_->CallOff(schedule); }
  void Fail(const absl::Status& failure) override { across_->Fail(failure); }
  absl::Status failure() const override { return across_->failure(); }

  void Depart() override {
    across_->Depart();
    here_->Depart();
  }

 private:
  const std::shared_ptr<ShmWorld> here_;  // outlives `across_`, whose threads tell it of failures
  const std::unique_ptr<ControlPlane> across_;
};

const std::vector<RankId>& RanksHere(const HostsTransportOptions& options, const HostPlace& self) {
  return options.hosts.hosts[static_cast<size_t>(self.host)];
}

// The shared memory of the ranks of this host, also if there is only one.
absl::StatusOr<std::shared_ptr<ShmWorld>> ConnectHere(const HostsTransportOptions& options, const HostPlace& self) {
  const std::vector<RankId>& ranks = RanksHere(options, self);
  const std::string& hostname = options.peers[static_cast<size_t>(options.rank)].host;
  absl::StatusOr<std::shared_ptr<ShmWorld>> world =
      ShmWorld::Connect({.job_id = absl::StrCat(options.meeting.membership.job_id, "-", self.host),
                         .rank = self.place,
                         .size = static_cast<int>(ranks.size()),
                         .ranks = ranks,
                         .job_size = static_cast<int>(options.peers.size()),
                         .hostname = hostname,
                         .connect_timeout = options.connect_timeout,
                         .control_timeout = options.control_timeout});
  if (world.ok()) return world;
  return absl::Status(world.status().code(),
                      absl::StrCat("on host ", hostname, ", where ", NameRanks(ranks),
                                   " of the job are numbered from 0: ", world.status().message()));
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectControl(HostsTransportOptions& options,
                                                             const std::shared_ptr<ShmWorld>& here) {
  Endpoint parent;
  if (options.rank != kCoordinatorRank) {
    const Member& member = options.meeting.membership.members[static_cast<size_t>(ControlParent(options.rank))];
    RONDA_ASSIGN_OR_RETURN(parent, ResolveEndpoint(member.control_address, member.control_port));
  }
  return ConnectGrpcControlPlane({.rank = options.rank,
                                  .peers = options.peers,
                                  .listener = std::move(options.meeting.listener),
                                  .parent = std::move(parent),
                                  .job_id = options.meeting.membership.job_id,
                                  .secret = options.meeting.secret,
                                  .start_timeout = options.connect_timeout,
                                  .heartbeat = options.heartbeat,
                                  .heartbeat_timeout = options.heartbeat_timeout,
                                  .flights = here->flights(),
                                  .on_failure = [here](const absl::Status& failure) { here->FailWith(failure); }});
}

// MPI between some ranks of the job.
class MpiLevels {
 public:
  // Neither is owned; the control plane outlives the communicators.
  MpiLevels(const HostsTransportOptions& options, const ControlPlane& control, std::shared_ptr<FlightBoard> flights)
      : options_(options), control_(control), flights_(std::move(flights)) {}

  absl::StatusOr<std::unique_ptr<Communicator>> Flat() const {
    std::vector<RankId> all;
    for (const Peer& peer : options_.peers) all.push_back(peer.rank);
    return Connect(all, kFlatTag);
  }

  // Between the ranks with this place on their hosts; nullptr if not every host has one.
  absl::StatusOr<std::unique_ptr<Communicator>> Across(int place) const {
    if (place >= SizesOf(options_.hosts).least) return nullptr;
    std::vector<RankId> ranks;
    for (const std::vector<RankId>& host : options_.hosts.hosts) ranks.push_back(host[static_cast<size_t>(place)]);
    return Connect(ranks, kFirstAcrossTag + place);
  }

 private:
  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const std::vector<RankId>& ranks, int tag) const {
    RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PointToPoint> messages, options_.session->Connect(ranks, tag));
    std::vector<Peer> peers;
    for (const RankId rank : ranks) peers.push_back(options_.peers[static_cast<size_t>(rank)]);
    return std::make_unique<MpiCommunicator>(
        MpiCommunicator::Options{.messages = std::move(messages),
                                 .peers = std::move(peers),
                                 .flights = flights_,
                                 .job_failure = [control = &control_] { return control->failure(); }});
  }

  const HostsTransportOptions& options_;
  const ControlPlane& control_;
  const std::shared_ptr<FlightBoard> flights_;
};

absl::StatusOr<std::unique_ptr<Communicator>> ConnectData(const HostsTransportOptions& options, const HostPlace& self,
                                                          const std::shared_ptr<ShmWorld>& here,
                                                          const ControlPlane& control) {
  const MpiLevels levels(options, control, here->flights());
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> flat, levels.Flat());
  if (options.levels == HostsTransportOptions::Levels::kFlat) return flat;
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> across, levels.Across(self.place));
  return std::make_unique<HierarchicalCommunicator>(
      HierarchicalCommunicator::Options{.rank = options.rank,
                                        .hosts = options.hosts,
                                        .local = std::make_unique<ShmCommunicator>(here),
                                        .across = std::move(across),
                                        .flat = std::move(flat)});
}

}  // namespace

absl::StatusOr<Transport> ConnectHosts(HostsTransportOptions options) {
  const HostPlace self = PlaceOf(options.hosts, options.rank);
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmWorld> here, ConnectHere(options, self));
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<ControlPlane> across, ConnectControl(options, here));
  auto control = std::make_unique<HostsControlPlane>(std::move(across), here);
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> communicator, ConnectData(options, self, here, *control));
  return Transport{.control = std::move(control), .communicator = std::move(communicator), .flights = here->flights()};
}

}  // namespace ronda
