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

// One rank's membership in a job whose ranks share memory. If the job runs on several hosts, covers only this host. Has
// the memory, the identities of the other ranks, the job's first failure, and a monitor that fails the job when a peer
// dies. The control plane and the communicator use it. The ranks of a world are numbered from 0. Peers and flight
// recorders are numbered like the ranks of the whole job.
//
// Thread-safe.
class ShmWorld {
 public:
  struct Options {
    std::string job_id;  // see IsValidJobId(); part of the memory's name
    int64_t epoch = 0;   // of the job; also part of that name
    RankId rank = 0;
    int size = 1;
    // For a job on several hosts: maps each rank of this ShmWorld to its rank in the job. Empty if the two are equal.
    std::vector<RankId> ranks;
    int job_size = 1;                       // ranks on all hosts; used if `ranks` is not empty
    std::string hostname = "localhost";     // for messages
    size_t slot_bytes = size_t{512} << 10;  // of a chunk
    int slot_count = 4;                     // chunks in the ring of a rank
    absl::Duration connect_timeout = absl::Seconds(30);
    absl::Duration control_timeout = absl::Minutes(10);  // the longest wait for a rank to read its control messages
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
  // Returns the identity of a rank of this ShmWorld for messages to the user.
  Peer PeerOf(RankId rank) const;
  RankId JobRank(RankId rank) const {
    return options_.ranks.empty() ? rank : options_.ranks[static_cast<size_t>(rank)];
  }

  // Returns the flight recorders of all ranks of the job, in the job's rank order.
  const std::shared_ptr<FlightBoard>& flights() const { return flights_; }

  // Returns whether a waiting thread may spin before it sleeps. Returns false if the thread might occupy the core that
  // the awaited rank needs.
  bool MaySpin() const { return may_spin_; }

  // Returns the job's first failure, or OK if the job has not failed.
  absl::Status failure() const { return view_.header().failure.Get(); }
  bool HasFailed() const { return view_.header().failure.IsSet(); }

  // Makes this rank's `failure` the job's failure, unless the job has already failed. Wakes all ranks.
  void Fail(const absl::Status& failure);

  // Like Fail(), but for a failure that another host reported, and whose text already names the rank.
  void FailWith(const absl::Status& failure);

  // Asks all ranks to unlock schedules up to number `schedule`, and rings their control doorbells.
  void RequestUnlock(uint64_t schedule);
  uint64_t unlock_requested() const { return view_.header().unlock_requested.load(std::memory_order_acquire); }

  // Declares that from now on the end of this rank's process is not a failure.
  void Depart();
  // Fails the job if this rank has not departed. Allocates no memory.
  void Leave();
  bool HasDeparted(RankId rank) const { return DepartureOf(rank) == ShmDeparture::kDeparted; }

  // Declares that this rank's program exits. If the rank has not departed when the process ends, the job fails, and the
  // failure says that the program exited. Takes no lock.
  void AnnounceExit();

 private:
  ShmWorld(Options options, std::shared_ptr<ShmMapping> mapping, std::shared_ptr<FlightBoard> flights);
  static absl::StatusOr<std::shared_ptr<ShmWorld>> Create(Options options, std::shared_ptr<ShmMapping> mapping);
  absl::Status StartMonitor();
  ShmDeparture DepartureOf(RankId rank) const { return view_.rank(rank).departure.load(std::memory_order_seq_cst); }
  void OnPeerEnd(RankId peer);
  void RecordDeath(RankId peer);
  // Makes "rank 1 (pid 4242) <how>" the job's failure. Allocates no memory.
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
