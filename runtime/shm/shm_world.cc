#include "runtime/shm/shm_world.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/job_id.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/shm/shm_attach.h"

namespace ronda {
namespace {

ShmGeometry GeometryOf(const ShmWorld::Options& options) {
  return {.size = options.size, .slot_bytes = options.slot_bytes, .slot_count = options.slot_count};
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmWorld>> ShmWorld::Connect(Options options) {
  const ShmGeometry geometry = GeometryOf(options);
  RONDA_RETURN_IF_ERROR(Validate(geometry));
  if (options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " is not below the size ", options.size));
  }
  if (!IsValidJobId(options.job_id)) {
    return absl::InvalidArgumentError(absl::StrCat("'", options.job_id, "' cannot be a job's id"));
  }
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<ShmMapping> mapping,
                         AttachAllRanks({.name = absl::StrCat("/ronda-", options.job_id),
                                         .self = {.rank = options.rank, .host = options.hostname, .pid = getpid()},
                                         .geometry = geometry,
                                         .timeout = options.connect_timeout,
                                         .refusal_time = options.refusal_time}));
  std::shared_ptr<ShmWorld> world(new ShmWorld(std::move(options), std::move(mapping)));
  RONDA_RETURN_IF_ERROR(world->StartMonitor());
  return world;
}

absl::StatusOr<std::vector<std::shared_ptr<ShmWorld>>> ShmWorld::ConnectInProcess(Options options) {
  const ShmGeometry geometry = GeometryOf(options);
  RONDA_RETURN_IF_ERROR(Validate(geometry));
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> mapping, AttachAllRanksInProcess(geometry));
  std::vector<std::shared_ptr<ShmWorld>> worlds;
  for (options.rank = 0; options.rank < options.size; ++options.rank) {
    worlds.push_back(std::shared_ptr<ShmWorld>(new ShmWorld(options, mapping)));
  }
  return worlds;
}

ShmWorld::ShmWorld(Options options, std::shared_ptr<ShmMapping> mapping)
    : options_(std::move(options)),
      mapping_(std::move(mapping)),
      view_(mapping_->base(), GeometryOf(options_)),
      flights_(std::make_shared<FlightBoard>(view_.FlightRecorders(), mapping_)),
      may_spin_(HasCoreForEachRank(view_)) {}

ShmWorld::~ShmWorld() = default;

absl::Status ShmWorld::StartMonitor() {
  std::vector<PeerMonitor::Watched> peers;
  for (RankId peer = 0; peer < size(); ++peer) {
    const ShmRankBlock& block = view_.rank(peer);
    const ProcessId process = {.pid = block.pid.load(), .start_time = block.start_time.load()};
    if (process.pid != getpid()) peers.push_back({.rank = peer, .process = process});
  }
  if (peers.empty()) return absl::OkStatus();
  RONDA_ASSIGN_OR_RETURN(monitor_, PeerMonitor::Start(peers, [this](RankId peer) { OnPeerEnd(peer); }));
  return absl::OkStatus();
}

void ShmWorld::OnPeerEnd(RankId peer) {
  if (HasDeparted(peer)) return;
  const absl::Status death =
      absl::UnavailableError(absl::StrCat(ToString(PeerOf(peer)), " died; it ", DescribeLastAct(flights_->Of(peer))));
  view_.header().failure.SetAfterDeathOf(peer, rank(), death);
  WakeAll();
}

void ShmWorld::Fail(const absl::Status& failure) {
  if (failure.ok()) return;
  view_.header().failure.Set(rank(), Attribute(failure, PeerOf(rank())));
  WakeAll();
}

void ShmWorld::CallOff(uint64_t schedule) {
  std::atomic<uint64_t>& highest = view_.header().called_off;
  uint64_t seen = highest.load(std::memory_order_relaxed);
  while (seen < schedule && !highest.compare_exchange_weak(seen, schedule, std::memory_order_seq_cst)) continue;
  for (RankId peer = 0; peer < size(); ++peer) view_.rank(peer).control.Ring();
}

void ShmWorld::Depart() {
  self().departed.store(1, std::memory_order_seq_cst);
  WakeAll();
}

void ShmWorld::WakeAll() {
  for (RankId peer = 0; peer < size(); ++peer) {
    view_.rank(peer).data.Ring();
    view_.rank(peer).control.Ring();
  }
}

Peer ShmWorld::PeerOf(RankId rank) const {
  return {.rank = rank, .host = options_.hostname, .pid = view_.rank(rank).pid.load(std::memory_order_relaxed)};
}

}  // namespace ronda
