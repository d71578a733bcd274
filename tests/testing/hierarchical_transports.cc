#include "tests/testing/message_transports.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "runtime/collectives/hierarchical/hierarchical_communicator.h"
#include "runtime/collectives/messages/message_communicator.h"
#include "runtime/collectives/shm/shm_communicator.h"
#include "runtime/control/inprocess/in_process_job.h"
#include "runtime/shm/shm_world.h"
#include "tests/testing/fakes.h"

namespace ronda::testing {
namespace {

constexpr size_t kChunkBytes = 4096;

using Worlds = std::vector<std::shared_ptr<ShmWorld>>;

// A failure of the job ends waits in the shared memory of every host too.
class LinkedControlPlane : public ForwardingControlPlane {
 public:
  // `hosts`: one rank of each.
  LinkedControlPlane(std::unique_ptr<ControlPlane> job, Worlds hosts)
      : ForwardingControlPlane(std::move(job)), hosts_(std::move(hosts)) {}

  void Fail(const absl::Status& failure) override {
    ForwardingControlPlane::Fail(failure);
    for (const std::shared_ptr<ShmWorld>& host : hosts_) host->FailWith(ForwardingControlPlane::failure());
  }

 private:
  const Worlds hosts_;
};

// The ranks of each host on shared memory.
std::vector<Worlds> ConnectHosts(const HostMap& map, int size) {
  std::vector<Worlds> hosts;
  for (const std::vector<RankId>& ranks : map.hosts) {
    auto worlds = ShmWorld::ConnectInProcess(
        {.size = static_cast<int>(ranks.size()), .ranks = ranks, .job_size = size, .slot_bytes = kChunkBytes});
    if (!worlds.ok()) {
      ADD_FAILURE() << worlds.status();
      return {};
    }
    hosts.push_back(*std::move(worlds));
  }
  return hosts;
}

// The recorders of all ranks, each in its host's memory.
std::shared_ptr<FlightBoard> BoardOf(const HostMap& map, const std::vector<Worlds>& hosts, int size) {
  std::vector<FlightRecorder*> recorders;
  for (RankId rank = 0; rank < size; ++rank) {
    recorders.push_back(&hosts[PositionOf(map, rank).host].front()->flights()->Of(rank));
  }
  return std::make_shared<FlightBoard>(std::move(recorders), std::make_shared<std::vector<Worlds>>(hosts));
}

// What the ranks of one job share.
struct Shared {
  std::shared_ptr<InProcessJob> job;
  std::shared_ptr<FlightBoard> flights;
};

// One communicator each for `ranks`, which exchange messages.
std::vector<std::unique_ptr<Communicator>> ConnectMessages(const std::vector<RankId>& ranks, const Shared& shared,
                                                           uint64_t seed) {
  std::vector<Peer> peers;
  for (RankId rank : ranks) peers.push_back({.rank = rank, .host = "localhost", .pid = getpid()});
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (std::unique_ptr<PointToPoint>& end : ConnectFakeMessages(static_cast<int>(ranks.size()), seed)) {
    communicators.push_back(std::make_unique<MessageCommunicator>(MessageCommunicator::Options{
        .messages = std::move(end), .peers = peers, .flights = shared.flights, .job_failure = [job = shared.job] {
          return job->failure();
        }}));
    communicators.back()->Tune({.chunk_bytes = kChunkBytes});
  }
  return communicators;
}

int SizeOf(const HostMap& map) {
  size_t size = 0;
  for (const std::vector<RankId>& ranks : map.hosts) size += ranks.size();
  return static_cast<int>(size);
}

}  // namespace

std::vector<Transport> ConnectHierarchicalTransports(const HostMap& map, uint64_t seed) {
  const int size = SizeOf(map);
  const std::vector<Worlds> hosts = ConnectHosts(map, size);
  if (hosts.empty()) return {};
  Worlds one_of_each;
  for (const Worlds& host : hosts) one_of_each.push_back(host.front());
  const Shared shared = {.job = std::make_shared<InProcessJob>(InProcessJob::Options{.size = size}),
                         .flights = BoardOf(map, hosts, size)};
  std::vector<std::unique_ptr<Communicator>> flat = ConnectMessages(Group::All(size).ranks(), shared, seed);
  std::vector<std::vector<std::unique_ptr<Communicator>>> across;
  for (int place = 0; place < SizesOf(map).least; ++place) {
    across.push_back(ConnectMessages(RanksAt(map, place), shared, ++seed));
  }
  std::vector<Transport> transports;
  for (RankId rank = 0; rank < size; ++rank) {
    const HostPosition self = PositionOf(map, rank);
    // Small chunks: tests need no large tensors to have several.
    HierarchicalCommunicator::Options levels = {.rank = rank, .hosts = map, .chunk_bytes = size_t{1} << 20};
    levels.local = std::make_unique<ShmCommunicator>(hosts[self.host][self.local_rank]);
    if (self.local_rank < static_cast<int>(across.size())) levels.across = std::move(across[self.local_rank][self.host]);
    levels.flat = std::move(flat[rank]);
    auto job = std::make_unique<InProcessControlPlane>(shared.job, rank);
    auto communicator = std::make_unique<HierarchicalCommunicator>(std::move(levels));
    const HostLevels of_communicator = communicator->levels();
    transports.push_back({.control = std::make_unique<LinkedControlPlane>(std::move(job), one_of_each),
                          .communicator = std::move(communicator),
                          .flights = shared.flights,
                          .levels = of_communicator});
  }
  return transports;
}

}  // namespace ronda::testing
