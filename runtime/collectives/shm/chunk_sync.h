// How the ranks of a host pass chunks to each other through slots in shared memory.
//
// All collectives of a job together are one sequence of chunks, numbered alike on every rank. Chunk g of a rank lies in
// its slot g modulo slot_count. Each rank counts how many chunks it has packed (its contribution is in its slot),
// reduced (its shard of the result is in its slot) and done (it needs nobody's slots of that chunk any more). The
// counters only grow.
//
// Memory ordering: a rank writes a slot, then stores its counter; who reads the slot has loaded the counter (acquire)
// before: the slot's bytes are visible. A rank reads slots, then stores `done`; who overwrites a slot has loaded `done`
// of all ranks before: the reads are over.
// Going to sleep: the waiter stores waits_for, adds itself to `sleepers`, then looks at the counter once more; who
// stores a counter looks at `sleepers` afterwards, then at waits_for. All of these are sequentially consistent, so
// either the waiter sees the new counter, or the other sees the waiter and rings its doorbell (whose own argument is in
// doorbell.h).
#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/types.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// The collective that a rank is in, for errors.
struct RunningCollective {
  OpType op;
  absl::string_view label;
  size_t bytes_total = 0;
  size_t bytes_done = 0;  // of this rank's output
};

// One rank's view of everybody's counters. Thread-compatible.
class ChunkSync {
 public:
  explicit ChunkSync(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  const ShmWorld& world() const { return *world_; }

  // Says that this rank has passed `stage` of all chunks below `chunks`.
  void Publish(ShmStage stage, uint64_t chunks);

  // Waits until `rank` has passed `stage` of all chunks below `chunks`.
  // Errors: the job's failure; ABORTED if `rank` has departed; DEADLINE_EXCEEDED.
  absl::Status WaitFor(RankId rank, ShmStage stage, uint64_t chunks, const RunningCollective& running) {
    return Counter(rank, stage).load(std::memory_order_acquire) >= chunks ? absl::OkStatus()
                                                                          : WaitLonger(rank, stage, chunks, running);
  }

  // WaitFor every other rank.
  absl::Status WaitForAll(ShmStage stage, uint64_t chunks, const RunningCollective& running);

  // Waits until nobody needs what the slot of `chunk` held before.
  absl::Status WaitForSlot(uint64_t chunk, const RunningCollective& running);

  // Where `rank` puts `chunk`.
  char* Slot(RankId rank, uint64_t chunk) const { return world_->view().Slot(rank, chunk); }

 private:
  std::atomic<uint64_t>& Counter(RankId rank, ShmStage stage) const {
    return world_->view().rank(rank).progress[static_cast<int>(stage)].chunks;
  }
  absl::Status WaitLonger(RankId rank, ShmStage stage, uint64_t chunks, const RunningCollective& running);
  bool Spin(const std::atomic<uint64_t>& counter, uint64_t chunks) const;
  absl::Status Sleep(RankId rank, const std::atomic<uint64_t>& counter, uint64_t chunks,
                     const RunningCollective& running);
  absl::Status DepartedError(RankId rank, const RunningCollective& running) const;
  absl::Status DeadlineError(RankId rank, const RunningCollective& running) const;

  const std::shared_ptr<ShmWorld> world_;
  uint64_t done_by_all_ = 0;  // chunks that every rank is known to be done with
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
