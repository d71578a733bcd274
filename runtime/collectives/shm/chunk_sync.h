// How the ranks of a host pass chunks to each other through slots in shared memory.
//
// All collectives of a job together are one stream of data, in which positions count bytes and mean the same on every
// rank; see data_stream.h. Each rank keeps the last part of its stream in a ring, and counts up to which position it
// has packed (its contribution is in its ring), reduced (its shard of the result is in its ring) and is done (it needs
// nobody's data before that any more). The counters only grow.
//
// Memory ordering: a rank writes its ring, then stores its counter; who reads the ring has loaded the counter (acquire)
// before: the bytes are visible. A rank reads rings, then stores `done`; who overwrites a part of a ring has loaded
// `done` of all ranks before: the reads are over.
//
// Going to sleep: the waiter stores waits_for, adds itself to `sleepers`, then looks at the counter again; who stores a
// counter looks at `sleepers` afterwards, then at waits_for, and rings the waiter's doorbell (whose own argument is in
// doorbell.h). Between the store of the counter and the look at `sleepers` there is no fence, which would cost every
// hand-over the time that it takes the stored lines to come back from the core that read them last. So a store may
// still be on its way when its thread finds no sleeper (the compiler, though, must not move the look before the store).
// It arrives soon, whatever happens to the thread: a waiter therefore sleeps for long only once it has looked in vain
// kStoresArrive after it announced itself. Even then it looks up every second, in case the other is stopped before the
// ring.
//
// Votes (communicator.h): a rank that vetoes a collective stores where it begins beside its count of what is packed,
// then the count. Who has seen the count (acquire) sees the veto, and every rank looks for vetoes when all have packed
// their first chunk, before any output is written. Positions only grow, so nothing is reset. A later veto could hide
// this one from who has not looked yet: so a rank vetoes when all others are done with the collective before.
#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/monitor/wait_watch.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Where the chunks of one collective lie in the stream of data that all ranks go through together.
//
// Every chunk but the last has chunk_bytes. A rank keeps position p of its stream at p modulo the size of its ring, of
// which chunk_bytes is a divisor, and no chunk lies across a multiple of chunk_bytes: so each is in one piece.
struct ChunkSequence {
  uint64_t previous_end;  // of the collective before
  uint64_t begin;
  size_t chunk_bytes;
  uint64_t count;
  uint64_t end;

  uint64_t Begin(uint64_t k) const { return begin + k * chunk_bytes; }
  uint64_t End(uint64_t k) const { return std::min(end, begin + (k + 1) * chunk_bytes); }
};

// Gives each collective of a job its place in the stream. All ranks make the same calls, and so get the same places.
class DataStream {
 public:
  explicit DataStream(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  size_t chunk_bytes() const { return chunk_bytes_; }

  // For the collectives to come. All ranks make the same call at the same place.
  void set_chunk_bytes(size_t chunk_bytes) { chunk_bytes_ = chunk_bytes; }

  // Room for `bytes` bytes from each rank, in granules that no chunk cuts: chunks then end with less than a granule of
  // waste. Little data lies close together, so that it goes round the whole ring too before it comes to a line that
  // another core has read lately.
  // REQUIRES: bytes is a multiple of granule_bytes, which is at most chunk_bytes().
  ChunkSequence Take(size_t bytes, size_t granule_bytes = 1) {
    const uint64_t previous_end = next_;
    const uint64_t begin = FitsInCurrentChunk(bytes) ? next_ : RoundUp(next_, chunk_bytes_);
    // What fits in one chunk, as most calls do, takes no division.
    const size_t used_bytes = bytes <= chunk_bytes_ ? chunk_bytes_ : chunk_bytes_ - chunk_bytes_ % granule_bytes;
    const uint64_t full_chunks = bytes <= used_bytes ? 0 : (bytes - 1) / used_bytes;
    next_ = begin + full_chunks * chunk_bytes_ + RoundUp(bytes - full_chunks * used_bytes, kLineBytes);
    return {.previous_end = previous_end,
            .begin = begin,
            .chunk_bytes = chunk_bytes_,
            .count = bytes == 0 ? 0 : full_chunks + 1,
            .end = next_};
  }

  // A place for a collective whose data travels elsewhere.
  ChunkSequence TakeLine() {
    const uint64_t begin = next_;
    next_ += kLineBytes;
    return {.previous_end = begin, .begin = begin, .chunk_bytes = chunk_bytes_, .count = 1, .end = next_};
  }

 private:
  static constexpr size_t kLineBytes = 64;

  static uint64_t RoundUp(uint64_t position, size_t multiple) {
    return (position + multiple - 1) / multiple * multiple;
  }
  bool FitsInCurrentChunk(size_t bytes) const { return next_ % chunk_bytes_ + bytes <= chunk_bytes_; }

  size_t chunk_bytes_;
  uint64_t next_ = 0;
};

// One rank's view of everybody's counters. Thread-compatible.
class ChunkSync {
 public:
  explicit ChunkSync(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  const ShmWorld& world() const { return *world_; }

  // What waits need to know about the collective that this rank is in.
  RunningCollective Running(const CallInfo& info, size_t bytes_total) const {
    return {.self = world_->JobRank(world_->rank()),
            .op = info.op,
            .label = info.label,
            .limits = info.limits,
            .bytes_total = bytes_total};
  }

  // Says that this rank has passed `stage` of everything before `position`.
  void Publish(ShmStage stage, uint64_t position) { Publish(Counter(world_->rank(), stage), position); }

  // Waits until `rank` has passed `stage` of everything before `position`.
  // Errors: the job's failure; ABORTED if `rank` has departed; DEADLINE_EXCEEDED.
  absl::Status WaitFor(RankId rank, ShmStage stage, uint64_t position, const RunningCollective& running) {
    return WaitFor(rank, Counter(rank, stage), position, running);
  }

  // Stores `value` in a word that others wait for, which only grows, and wakes who sleeps for it.
  void Publish(std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // no instruction: the compiler keeps the order
    if (world_->view().header().sleepers.load(std::memory_order_relaxed) != 0) WakeWaiters();
  }

  // Waits until `word`, which `rank` publishes, is `value` or more.
  // Errors: as the other.
  absl::Status WaitFor(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                       const RunningCollective& running) {
    return word.load(std::memory_order_acquire) >= value ? absl::OkStatus() : WaitLonger(rank, word, value, running);
  }

  // WaitFor every other member. REQUIRES: this rank is one.
  absl::Status WaitForMembers(const Members& members, ShmStage stage, uint64_t position,
                              const RunningCollective& running);

  // Vetoes the collective that takes `chunks`, and has no more to do with it.
  // Errors: as WaitFor.
  absl::Status Veto(const ChunkSequence& chunks, const RunningCollective& running);

  // Waits for the votes of all members on the collective that takes `chunks`, of which this rank has packed the first;
  // after a veto this rank has no more to do with it.
  // Errors: as WaitFor.
  absl::StatusOr<Ballot::Result> CountVotes(const Members& members, const ChunkSequence& chunks,
                                            const RunningCollective& running);

  // Waits until nobody needs what chunk k of `chunks` will overwrite; ranks outside of the group may still.
  absl::Status WaitForRoom(const ChunkSequence& chunks, uint64_t k, const RunningCollective& running);

  // Where `rank` keeps what is at `position`.
  char* Data(RankId rank, uint64_t position) const { return world_->view().Data(rank, position); }

 private:
  std::atomic<uint64_t>& Counter(RankId rank, ShmStage stage) const {
    return world_->view().rank(rank).progress[static_cast<int>(stage)].position;
  }
  std::atomic<uint64_t>& VetoOf(RankId rank) const {
    return world_->view().rank(rank).progress[static_cast<int>(ShmStage::kPacked)].veto;
  }
  // Says that this rank has passed all stages of everything before `position`.
  void PublishAllStages(uint64_t position);
  absl::Status WaitLonger(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                          const RunningCollective& running);
  // Rings for all who sleep for something of this rank.
  void WakeWaiters();
  // Wait a moment without going to sleep; whether that was enough.
  bool Spin(const std::atomic<uint64_t>& word, uint64_t value) const;
  bool Yield(const std::atomic<uint64_t>& word, uint64_t value) const;
  absl::Status Sleep(RankId rank, const std::atomic<uint64_t>& word, uint64_t value, const RunningCollective& running);

  const std::shared_ptr<ShmWorld> world_;
  uint64_t done_by_all_ = 0;  // a position before which every rank is known to be done
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
