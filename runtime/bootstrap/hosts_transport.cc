#include "runtime/bootstrap/hosts_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/bootstrap/tcp_data.h"
#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/control/grpc/grpc_control_plane.h"
#include "runtime/control/mpi/mpi_control_plane.h"
#include "runtime/control/rendezvous/rank_names.h"
#include "runtime/shm/shm_world.h"

namespace ronda {
namespace {

// Of MpiSession::Connect and, for data, ConnectTcp. Ranks with the same place on their hosts share the one of their
// place behind the last.
constexpr int kFlatTag = 0;
constexpr int kControlTag = 1;
constexpr int kFirstAcrossTag = 2;

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

const std::vector<RankId>& RanksHere(const HostsTransportOptions& options, const HostPosition& self) {
  return options.hosts.hosts[static_cast<size_t>(self.host)];
}

// The shared memory of the ranks of this host, also if there is only one.
absl::StatusOr<std::shared_ptr<ShmWorld>> ConnectHere(const HostsTransportOptions& options, const HostPosition& self) {
  const std::vector<RankId>& ranks = RanksHere(options, self);
  const std::string& hostname = options.peers[static_cast<size_t>(options.rank)].host;
  absl::StatusOr<std::shared_ptr<ShmWorld>> world =
      ShmWorld::Connect({.job_id = absl::StrCat(options.meeting.membership.job_id, "-", self.host),
                         .rank = self.local_rank,
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

// Ranks of the job that exchange messages, and this rank's end of that.
struct MessageLevel {
  std::vector<Peer> peers;  // as `messages` number them
  std::unique_ptr<PointToPoint> messages;
};

// What carries this rank's messages.
struct MessageLevels {
  MessageLevel control;  // between all ranks; without messages if control messages do not go over MPI
  MessageLevel flat;     // between all ranks
  MessageLevel across;   // between the ranks with this place on their hosts; without messages if not every host has one
};

std::vector<RankId> AllRanks(const HostsTransportOptions& options) {
  std::vector<RankId> all;
  for (const Peer& peer : options.peers) all.push_back(peer.rank);
  return all;
}

// With this rank's place on their hosts; empty if no level across is wanted, or not every host has the place.
std::vector<RankId> RanksAcross(const HostsTransportOptions& options, const HostPosition& self) {
  const bool is_two_levels = options.levels == HostsTransportOptions::Levels::kTwoLevels;
  const bool goes_across = is_two_levels && self.local_rank < SizesOf(options.hosts).least;
  return goes_across ? RanksAt(options.hosts, self.local_rank) : std::vector<RankId>();
}

MessageLevel LevelOf(const HostsTransportOptions& options, const std::vector<RankId>& ranks,
                     std::unique_ptr<PointToPoint> messages) {
  MessageLevel level = {.messages = std::move(messages)};
  for (const RankId rank : ranks) level.peers.push_back(options.peers[static_cast<size_t>(rank)]);
  return level;
}

absl::StatusOr<MessageLevel> ConnectMpiLevel(const HostsTransportOptions& options, const std::vector<RankId>& ranks,
                                             int tag) {
  RONDA_ASSIGN_OR_RETURN(std::unique_ptr<PointToPoint> messages, options.session->Connect(ranks, tag));
  return LevelOf(options, ranks, std::move(messages));
}

// All of it is connected before any control message travels through MPI, which blocks for the others when it connects:
// a rank that blocks there would pass on no messages.
absl::StatusOr<MessageLevels> ConnectMpiLevels(const HostsTransportOptions& options, const HostPosition& self) {
  MessageLevels levels;
  RONDA_ASSIGN_OR_RETURN(levels.flat, ConnectMpiLevel(options, AllRanks(options), kFlatTag));
  if (options.meeting.control == NetworkSettings::Control::kMpi) {
    RONDA_ASSIGN_OR_RETURN(levels.control, ConnectMpiLevel(options, AllRanks(options), kControlTag));
  }
  const std::vector<RankId> across = RanksAcross(options, self);
  if (across.empty()) return levels;
  RONDA_ASSIGN_OR_RETURN(levels.across, ConnectMpiLevel(options, across, kFirstAcrossTag + self.local_rank));
  return levels;
}

absl::StatusOr<MessageLevels> ConnectTcpLevels(const HostsTransportOptions& options, const HostPosition& self,
                                               const ControlPlane& control) {
  std::vector<TcpLevel> wanted = {{.number = kFlatTag, .ranks = AllRanks(options)}};
  const std::vector<RankId> across = RanksAcross(options, self);
  if (!across.empty()) {
    wanted.push_back({.number = static_cast<uint32_t>(kFirstAcrossTag + self.local_rank), .ranks = across});
  }
  RONDA_ASSIGN_OR_RETURN(auto messages,
                         ConnectTcpData(options.meeting, wanted,
                                        {.rank = options.rank, .timeout = options.connect_timeout, .job_failure = [&] {
                                           return control.failure();
                                         }}));
  MessageLevels levels = {.flat = LevelOf(options, wanted[0].ranks, std::move(messages[0]))};
  if (!across.empty()) levels.across = LevelOf(options, across, std::move(messages[1]));
  return levels;
}

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectGrpcControl(HostsTransportOptions& options,
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

absl::StatusOr<std::unique_ptr<ControlPlane>> ConnectMpiControl(const HostsTransportOptions& options,
                                                                const std::shared_ptr<ShmWorld>& here,
                                                                MessageLevel level) {
  return ConnectMpiControlPlane({.rank = options.rank,
                                 .peers = std::move(level.peers),
                                 .messages = std::move(level.messages),
                                 .job_id = options.meeting.membership.job_id,
                                 .start_timeout = options.connect_timeout,
                                 .heartbeat = options.heartbeat,
                                 .heartbeat_timeout = options.heartbeat_timeout,
                                 .flights = here->flights(),
                                 .on_failure = [here](const absl::Status& failure) { here->FailWith(failure); },
                                 .abandon_messages = [session = options.session] { session->LeaveWithoutEnd(); }});
}

// nullptr if the level has no messages. The control plane outlives the communicator.
std::unique_ptr<Communicator> MakeCommunicator(const HostsTransportOptions& options, MessageLevel level,
                                               const std::shared_ptr<ShmWorld>& here, const ControlPlane& control) {
  if (level.messages == nullptr) return nullptr;
  const size_t ranks_here = RanksHere(options, PositionOf(options.hosts, options.rank)).size();
  return std::make_unique<MessageCommunicator>(
      MessageCommunicator::Options{.messages = std::move(level.messages),
                                   .peers = std::move(level.peers),
                                   .flights = here->flights(),
                                   .job_failure = [control = &control] { return control->failure(); },
                                   .ranks_on_host = static_cast<int>(ranks_here)});
}

// Adds what carries the data to the control plane.
void ConnectData(const HostsTransportOptions& options, const std::shared_ptr<ShmWorld>& here, MessageLevels levels,
                 Transport* transport) {
  transport->communicator = MakeCommunicator(options, std::move(levels.flat), here, *transport->control);
  if (options.levels == HostsTransportOptions::Levels::kFlat) return;
  auto hierarchical = std::make_unique<HierarchicalCommunicator>(HierarchicalCommunicator::Options{
      .rank = options.rank,
      .hosts = options.hosts,
      .local = std::make_unique<ShmCommunicator>(here),
      .across = MakeCommunicator(options, std::move(levels.across), here, *transport->control),
      .flat = std::move(transport->communicator)});
  transport->levels = hierarchical->levels();
  transport->communicator = std::move(hierarchical);
}

}  // namespace

absl::StatusOr<Transport> ConnectHosts(HostsTransportOptions options) {
  const HostPosition self = PositionOf(options.hosts, options.rank);
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmWorld> here, ConnectHere(options, self));
  std::unique_ptr<ControlPlane> across;
  // First: it hears of ranks that cannot go on. MPI would wait for them for ever.
  if (options.meeting.control != NetworkSettings::Control::kMpi) {
    RONDA_ASSIGN_OR_RETURN(across, ConnectGrpcControl(options, here));
  }
  const bool uses_mpi = options.carrier == HostsTransportOptions::Carrier::kMpi;
  absl::StatusOr<MessageLevels> levels =
      uses_mpi ? ConnectMpiLevels(options, self) : ConnectTcpLevels(options, self, *across);
  if (!levels.ok()) {
    // Else the others would take the end of the control plane for this rank's farewell, and wait for it.
    if (across != nullptr) across->Fail(levels.status());
    return levels.status();
  }
  if (across == nullptr) {
    RONDA_ASSIGN_OR_RETURN(across, ConnectMpiControl(options, here, std::move(levels->control)));
  }
  Transport transport = {.control = std::make_unique<HostsControlPlane>(std::move(across), here),
                         .flights = here->flights()};
  ConnectData(options, here, *std::move(levels), &transport);
  return transport;
}

}  // namespace ronda
