#ifndef RONDA_RUNTIME_SHM_SHM_WORLD_H_
#define RONDA_RUNTIME_SHM_SHM_WORLD_H_

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

// One rank's membership in a job, or in the part of a job on one host, that lives in shared memory: who the others are,
// the job's first failure, and a monitor that makes the death of a peer that failure. Control plane and communicator
// are built on it. Its ranks are numbered from 0; what others read (peers, flight recorders) goes by ranks of the job.
//
// Thread-safe.
class ShmWorld {
 public:
  struct Options {
    std::string job_id;  // see IsValidJobId; part of the name under /dev/shm while the ranks come together
    RankId rank = 0;
    int size = 1;
    // Of a job on several hosts: its ranks that are on this one, by their numbers here. Empty: the same numbers.
    std::vector<RankId> ranks;
    int job_size = 1;                       // ranks on all hosts, where `ranks` is not empty
    std::string hostname = "localhost";     // for messages
    size_t slot_bytes = size_t{512} << 10;  // of a chunk
    int slot_count = 4;                     // chunks in the ring of a rank
    absl::Duration connect_timeout = absl::Seconds(30);
    absl::Duration control_timeout = absl::Minutes(10);  // of a wait for a rank to take its control messages
    absl::Duration refusal_time = absl::Seconds(1);      // for which rank 0 lets the others read why it gave up
  };

  // Waits until all ranks have connected.
  // Errors: INVALID_ARGUMENT, and those of AttachAllRanks.
  static absl::StatusOr<std::shared_ptr<ShmWorld>> Connect(Options options);

  // All ranks of a job whose ranks are threads of this process, on one mapping. `options.job_id` and `rank` are not
  // used.
  static absl::StatusOr<std::vector<std::shared_ptr<ShmWorld>>> ConnectInProcess(Options options);

  ~ShmWorld();
  ShmWorld(const ShmWorld&) = delete;
  ShmWorld& operator=(const ShmWorld&) = delete;

  RankId rank() const { return options_.rank; }
  int size() const { return options_.size; }
  const Options& options() const { return options_; }
  const ShmView& view() const { return view_; }
  ShmRankBlock& self() const { return view_.rank(options_.rank); }
  // Of the ranks here, as the job calls it.
  Peer PeerOf(RankId rank) const;
  RankId JobRank(RankId rank) const {
    return options_.ranks.empty() ? rank : options_.ranks[static_cast<size_t>(rank)];
  }

  // Of all ranks of the job, by their ranks there.
  const std::shared_ptr<FlightBoard>& flights() const { return flights_; }

  // Whether it pays to spin for a moment before going to sleep: not if that takes the core from who is waited for.
  bool MaySpin() const { return may_spin_; }

  // The job's first failure; OK while there is none.
  absl::Status failure() const { return view_.header().failure.Get(); }
  bool HasFailed() const { return view_.header().failure.IsSet(); }

  // Makes `failure` of this rank the job's failure, unless there is one already, and wakes all ranks.
  void Fail(const absl::Status& failure);

  // The same for a failure of the job that has come here in another way and says itself whose it is.
  void FailWith(const absl::Status& failure);

  // Raises the highest schedule that has been called off to `schedule`, and rings all ranks' control bells.
  void CallOff(uint64_t schedule);
  uint64_t called_off() const { return view_.header().called_off.load(std::memory_order_acquire); }

  // From now on the end of this rank is no failure.
  void Depart();
  bool HasDeparted(RankId rank) const { return view_.rank(rank).departed.load(std::memory_order_seq_cst) != 0; }

 private:
  ShmWorld(Options options, std::shared_ptr<ShmMapping> mapping, std::shared_ptr<FlightBoard> flights);
  static absl::StatusOr<std::shared_ptr<ShmWorld>> Create(Options options, std::shared_ptr<ShmMapping> mapping);
  absl::Status StartMonitor();
  void OnPeerEnd(RankId peer);
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
