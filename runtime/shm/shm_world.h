// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_SHM_SHM_WORLD_H_
#define RONDA_RUNTIME_SHM_SHM_WORLD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/base/peer.h"
#include "runtime/base/types.h"
#include "runtime/monitor/flight_recorder.h"
#include "runtime/monitor/peer_monitor.h"
#include "runtime/shm/layout.h"
#include "runtime/shm/shm_attach.h"

namespace ronda {

// The membership of one rank in a job whose ranks use shared memory. If the job runs on several hosts, the ShmWorld
// covers this host. A ShmWorld has the memory, the identities of the other ranks, the job's first failure, and a
// monitor that makes the job fail when a peer dies. The control plane and the communicator use a ShmWorld. The ranks of
// a world are numbered from 0. Peers and flight recorders are numbered like the ranks of the whole job.
//
// Thread-safe.
class ShmWorld {
 public:
  struct Options {
    std::string job_id;  // see IsValidJobId; part of the name of the memory
    int64_t epoch = 0;   // of the job; also part of that name
    RankId rank = 0;
    int size = 1;
    // For a job on several hosts: the rank in the job of each rank in this ShmWorld. Empty if a rank has the same
    // number in both.
    std::vector<RankId> ranks;
    int job_size = 1;                       // ranks on all hosts; used if `ranks` is not empty
    std::string hostname = "localhost";     // for messages
    size_t slot_bytes = size_t{512} << 10;  // of a chunk
    int slot_count = 4;                     // chunks in the ring of a rank
    absl::Duration connect_timeout = absl::Seconds(30);
    absl::Duration control_timeout = absl::Minutes(10);  // the longest wait for a rank to take its control messages
    absl::Duration refusal_time = absl::Seconds(1);      // how long the other ranks have to read why rank 0 gave up
  };

  // Waits until all ranks have connected.
  // Errors: INVALID_ARGUMENT; the errors of AttachAllRanks.
  static absl::StatusOr<std::shared_ptr<ShmWorld>> Connect(Options options);

  // For a job whose ranks are threads of this process: returns the worlds of all ranks, which share one mapping.
  // Ignores `options.job_id` and `rank`.
  static absl::StatusOr<std::vector<std::shared_ptr<ShmWorld>>> ConnectInProcess(Options options);

  ~ShmWorld();
  ShmWorld(const ShmWorld&) = delete;
  ShmWorld& operator=(const ShmWorld&) = delete;

  RankId rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const Options& options() const { return options_; }
  const ShmView& view() const { return view_; }
  ShmRankBlock& self() const { return view_.rank(options_.rank); }
  // Returns the identity of a rank in this ShmWorld, for messages to users of the job.
  Peer PeerOf(RankId rank) const;
  RankId JobRank(RankId rank) const {
    return options_.ranks.empty() ? rank : options_.ranks[static_cast<size_t>(rank)];
  }

  // Returns the flight recorders of all ranks of the job, in the order of the job's ranks.
  const std::shared_ptr<FlightBoard>& flights() const { return flights_; }

  // Returns whether a waiting thread may spin before it sleeps. A waiting thread may not spin if it could take the core
  // of the rank for which it waits.
  bool MaySpin() const { return may_spin_; }

  // Returns the job's first failure, or OK if the job has not failed.
  absl::Status failure() const { return view_.header().failure.Get(); }
  bool HasFailed() const { return view_.header().failure.IsSet(); }

  // Makes this rank's `failure` the job's failure, unless the job has already failed. Wakes all ranks.
  void Fail(const absl::Status& failure);

  // Like Fail, but for a failure that another host has reported and whose text already names its rank.
  void FailWith(const absl::Status& failure);

  // Records that the schedules up to number `schedule` must be unlocked, and rings the control doorbells of all ranks.
  void RequestUnlock(uint64_t schedule);
  uint64_t unlock_requested() const { return view_.header().unlock_requested.load(std::memory_order_acquire); }

  // Declares that from now on the end of this rank is not a failure.
  void Depart();
  // Fails the job if this rank has not departed. Leave allocates no memory.
  void Leave();
  bool HasDeparted(RankId rank) const { return DepartureOf(rank) == ShmDeparture::kDeparted; }

  // Declares that the program of this rank has ended. If the rank has not departed, the job fails when the process
  // ends, and the failure says that the program had ended. AnnounceExit takes no lock.
  void AnnounceExit();

 private:
  ShmWorld(Options options, std::shared_ptr<ShmMapping> mapping, std::shared_ptr<FlightBoard> flights);
  static absl::StatusOr<std::shared_ptr<ShmWorld>> Create(Options options, std::shared_ptr<ShmMapping> mapping);
  absl::Status StartMonitor();
  ShmDeparture DepartureOf(RankId rank) const { return view_.rank(rank).departure.load(std::memory_order_seq_cst); }
  void OnPeerEnd(RankId peer);
  void RecordDeath(RankId peer);
  // Makes "rank 1 (pid 4242) <how>" the job's failure. RecordBriefly allocates no memory.
  void RecordBriefly(RankId peer, const char* how);
  void WakeAll();

  const Options options_;
  const std::shared_ptr<ShmMapping> mapping_;
  const ShmView view_;
  const std::shared_ptr<FlightBoard> flights_;
  const bool may_spin_;
  std::unique_ptr<PeerMonitor> monitor_;  // constant after Connect; nullptr if all ranks are in this process
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_SHM_WORLD_H_
