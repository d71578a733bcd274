// SPDX-License-Identifier: Apache-2.0

#include "runtime/shm/shm_world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/config.h"
#include "runtime/base/status_macros.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/shm/shm_attach.h"

namespace ronda {
namespace {

ShmGeometry GeometryOf(const ShmWorld::Options& options) {
  return {.size = options.size, .slot_bytes = options.slot_bytes, .slot_count = options.slot_count};
}

// Checks that `options.ranks` are distinct ranks of the job, in ascending order.
absl::Status CheckRanks(const ShmWorld::Options& options) {
  const std::vector<RankId>& ranks = options.ranks;
  if (ranks.empty()) return absl::OkStatus();
  const bool are_ascending =
      std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<RankId>()) == ranks.end();
  if (ranks.size() == static_cast<size_t>(options.size) && are_ascending && ranks.front() >= 0 &&
      ranks.back() < options.job_size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("not ", options.size, " ascending ranks of a job of ",
                                                 options.job_size, ": ", absl::StrJoin(ranks, ", ")));
}

// Each rank watches this many ranks: the next higher ones, with rank 0 after the last rank, in a circle. If ranks die,
// the closest living rank before them watches at least one of them, and fails the job on all ranks. If every rank
// watched all others, a host would need a descriptor per pair of ranks. Several ranks watch each rank, because one
// watching rank may be stopped.
constexpr int kWatchedRanks = 32;

bool Watches(RankId watcher, RankId peer, int size) {
  const int distance = (peer - watcher + size) % size;
  return 0 < distance && distance <= kWatchedRanks;
}

// The mappings that hold a FlightBoard's recorders: those of ranks on this host, and those of ranks on other hosts.
struct FlightMemory {
  std::shared_ptr<ShmMapping> here;
  std::shared_ptr<ShmMapping> elsewhere;
};

// The recorders of ranks on other hosts are in this process's private memory, where only pages that are written take
// physical memory.
absl::StatusOr<std::shared_ptr<FlightBoard>> MakeFlightBoard(const ShmWorld::Options& options,
                                                             const std::shared_ptr<ShmMapping>& mapping) {
  std::vector<FlightRecorder*> here;
  for (FlightRecorder& recorder : ShmView(mapping->base(), GeometryOf(options)).FlightRecorders()) {
    here.push_back(&recorder);
  }
  const FlightBoard::MappedFile file = {
      .descriptor = mapping->descriptor(), .base = mapping->base(), .bytes = mapping->bytes()};
  if (options.ranks.empty()) return std::make_shared<FlightBoard>(std::move(here), mapping, file);
  const auto job_size = static_cast<size_t>(options.job_size);
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> elsewhere,
                         ShmMapping::Anonymous(job_size * sizeof(FlightRecorder)));
  std::vector<FlightRecorder*> all;
  for (size_t rank = 0; rank < job_size; ++rank) {
    all.push_back(static_cast<FlightRecorder*>(elsewhere->base()) + rank);
  }
  for (size_t i = 0; i < here.size(); ++i) all[static_cast<size_t>(options.ranks[i])] = here[i];
  return std::make_shared<FlightBoard>(
      std::move(all), std::make_shared<FlightMemory>(FlightMemory{.here = mapping, .elsewhere = elsewhere}), file);
}

}  // namespace

absl::StatusOr<std::shared_ptr<ShmWorld>> ShmWorld::Connect(Options options) {
  const ShmGeometry geometry = GeometryOf(options);
  RONDA_RETURN_IF_ERROR(Validate(geometry));
  if (options.rank < 0 || options.rank >= options.size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " is not below the size ", options.size));
  }
  RONDA_RETURN_IF_ERROR(CheckRanks(options));
  if (!IsValidJobId(options.job_id)) {
    return absl::InvalidArgumentError(absl::StrCat("'", options.job_id, "' cannot be a job's id"));
  }
  RONDA_ASSIGN_OR_RETURN(ShmAttached attached,
                         AttachAllRanks({.job_id = options.job_id,
                                         .epoch = options.epoch,
                                         .self = {.rank = options.rank, .host = options.hostname, .pid = getpid()},
                                         .geometry = geometry,
                                         .timeout = options.connect_timeout,
                                         .refusal_time = options.refusal_time}));
  options.slot_bytes = attached.geometry.slot_bytes;
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<ShmWorld> world, Create(std::move(options), std::move(attached.mapping)));
  RONDA_RETURN_IF_ERROR(world->StartMonitor());
  return world;
}

absl::StatusOr<std::vector<std::shared_ptr<ShmWorld>>> ShmWorld::ConnectInProcess(Options options) {
  const ShmGeometry geometry = GeometryOf(options);
  RONDA_RETURN_IF_ERROR(Validate(geometry));
  RONDA_RETURN_IF_ERROR(CheckRanks(options));
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmMapping> mapping, AttachAllRanksInProcess(geometry));
  std::vector<std::shared_ptr<ShmWorld>> worlds;
  for (options.rank = 0; options.rank < options.size; ++options.rank) {
    RONDA_ASSIGN_OR_RETURN(std::shared_ptr<ShmWorld> world, Create(options, mapping));
    worlds.push_back(std::move(world));
  }
  return worlds;
}

absl::StatusOr<std::shared_ptr<ShmWorld>> ShmWorld::Create(Options options, std::shared_ptr<ShmMapping> mapping) {
  RONDA_ASSIGN_OR_RETURN(std::shared_ptr<FlightBoard> flights, MakeFlightBoard(options, mapping));
  return std::shared_ptr<ShmWorld>(new ShmWorld(std::move(options), std::move(mapping), std::move(flights)));
}

ShmWorld::ShmWorld(Options options, std::shared_ptr<ShmMapping> mapping, std::shared_ptr<FlightBoard> flights)
    : options_(std::move(options)),
      mapping_(std::move(mapping)),
      view_(mapping_->base(), GeometryOf(options_)),
      flights_(std::move(flights)),
      may_spin_(HasCoreForEachRank(view_)) {}

ShmWorld::~ShmWorld() = default;

absl::Status ShmWorld::StartMonitor() {
  std::vector<PeerMonitor::Watched> peers;
  for (RankId peer = 0; peer < size(); ++peer) {
    if (!Watches(rank(), peer, size())) continue;
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
  // If the job has already failed, that failure explains why the peer ended. For example, a rank that runs out of
  // memory usually reports that before it ends.
  if (!HasFailed()) RecordDeath(peer);
  WakeAll();
}

void ShmWorld::RecordDeath(RankId peer) {
  FailureRecord& record = view_.header().failure;
  const char* const how = DepartureOf(peer) == ShmDeparture::kExits ? kExitWithoutShutdown : "died";
  try {
    record.SetAfterDeathOf(
        peer, rank(),
        absl::StrCat(ToString(PeerOf(peer)), " ", how, "; it ", DescribeLastEvent(flights_->Of(JobRank(peer)))));
  } catch (const std::bad_alloc&) {
    RecordBriefly(peer, how);
  }
}

void ShmWorld::RecordBriefly(RankId peer, const char* how) {
  char text[128];
  const int bytes = std::snprintf(text, sizeof(text), "rank %d (pid %d) %s", JobRank(peer),
                                  view_.rank(peer).pid.load(std::memory_order_relaxed), how);
  view_.header().failure.SetAfterDeathOf(peer, rank(), absl::string_view(text, static_cast<size_t>(bytes)));
}

void ShmWorld::Fail(const absl::Status& failure) {
  if (!failure.ok()) FailWith(Attribute(failure, PeerOf(rank())));
}

void ShmWorld::FailWith(const absl::Status& failure) {
  view_.header().failure.Set(rank(), failure);
  WakeAll();
}

void ShmWorld::RequestUnlock(uint64_t schedule) {
  std::atomic<uint64_t>& highest = view_.header().unlock_requested;
  uint64_t seen = highest.load(std::memory_order_relaxed);
  while (seen < schedule && !highest.compare_exchange_weak(seen, schedule, std::memory_order_seq_cst)) continue;
  for (RankId peer = 0; peer < size(); ++peer) view_.rank(peer).control.Ring();
}

void ShmWorld::Depart() {
  self().departure.store(ShmDeparture::kDeparted, std::memory_order_seq_cst);
  WakeAll();
}

void ShmWorld::Leave() {
  if (HasDeparted(rank()) || HasFailed()) return;
  RecordBriefly(rank(), kLeftEarly);
  WakeAll();
}

void ShmWorld::AnnounceExit() {
  ShmDeparture none = ShmDeparture::kNone;
  self().departure.compare_exchange_strong(none, ShmDeparture::kExits, std::memory_order_seq_cst);
}

void ShmWorld::WakeAll() {
  for (RankId peer = 0; peer < size(); ++peer) {
    view_.rank(peer).data.Ring();
    view_.rank(peer).control.Ring();
  }
}

Peer ShmWorld::PeerOf(RankId rank) const {
  return {
      .rank = JobRank(rank), .host = options_.hostname, .pid = view_.rank(rank).pid.load(std::memory_order_relaxed)};
}

}  // namespace ronda
