// SPDX-License-Identifier: Apache-2.0

// Synchronises the ranks of a host that pass chunks to each other through ring buffers in shared memory.
//
// Terms: all collectives of a job together form one data *stream*. A *position* is a number of bytes from the start of
// the stream, and means the same on every rank. Each rank keeps the newest part of its stream in a *ring*. Each rank
// publishes three positions, its counters. Up to *packed*, the rank's contribution is in its ring; up to *reduced*, so
// is the rank's shard of the result. Up to *done*, the rank no longer reads other ranks' data. Counters never decrease.
//
// Memory ordering: a rank writes to its ring before it stores its counter (release). A reader that loads the counter
// (acquire) therefore sees these bytes. A rank stores its `done` counter after it has read from the rings. Before a
// rank overwrites a part of its ring, it loads the `done` counters of all ranks, so it knows that they no longer read
// this part.
//
// Sleeping: a waiter stores the rank that it waits for (waits_for), adds itself to `sleepers`, and then checks the
// counter again. A publisher stores its counter, checks `sleepers`, checks waits_for of each sleeper, and rings the
// sleeper's doorbell. (doorbell.h explains why no ring is lost.) There is no fence between the store of the counter and
// the check of `sleepers`: a fence would wait until the stored cache lines come back from the core that read them last,
// and so delay every chunk. Without it, the publisher may see no sleeper while other cores do not see its store yet.
// But they see it soon, and the compiler does not reorder the store and the check. So a waiter checks the counter again
// once kStoresArrive has passed since it added itself to `sleepers`. Only if this check also fails does it sleep for
// long. Even then, it wakes up every second, because the publisher may be stopped before it rings the doorbell.
//
// Votes (communicator.h): a rank stores its vote in a word next to its `packed` counter, then stores the counter. A
// rank that loads the counter (acquire) also sees the vote. Once all ranks have packed their first chunk, every rank
// reads the votes of all ranks, and only then writes any output. Votes use two words alternately, so a rank overwrites
// its word of vote n in vote n + 2. By then, all ranks have read it: if the rank approved in vote n + 1, all ranks had
// reached vote n + 1, and if it vetoed, it first waited until all other ranks had finished the collective of vote n.
#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/types.h"
#include "runtime/collectives/communicator.h"
#include "runtime/monitor/wait_watch.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// The stream positions of one collective's chunks.
//
// Every chunk except the last has chunk_bytes. In a rank's ring, the byte at position p is at offset p modulo the ring
// size. The ring size is a multiple of chunk_bytes, and no chunk crosses a multiple of chunk_bytes, so every chunk is
// contiguous.
struct ChunkSequence {
  uint64_t previous_end;  // the end of the previous collective
  uint64_t begin;
  size_t chunk_bytes;
  uint64_t count;
  uint64_t end;

  uint64_t Begin(uint64_t k) const { return begin + k * chunk_bytes; }
  uint64_t End(uint64_t k) const { return std::min(end, begin + (k + 1) * chunk_bytes); }
};

// Assigns stream positions to each collective of a job. All ranks must make the same calls, so that they get the same
// positions.
class DataStream {
 public:
  explicit DataStream(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  size_t chunk_bytes() const { return chunk_bytes_; }

  // Applies to later collectives. All ranks must call this at the same point in the sequence of calls.
  void set_chunk_bytes(size_t chunk_bytes) { chunk_bytes_ = chunk_bytes; }

  // Reserves positions for a collective in which each rank streams `bytes` bytes. Chunks end between granules, so a
  // chunk may have an unused rest that is smaller than a granule. Small reservations share a chunk, so that the stream
  // passes through the whole ring before it reuses a cache line that another core has read recently.
  // REQUIRES: bytes is a multiple of granule_bytes, which is at most chunk_bytes().
  ChunkSequence Reserve(size_t bytes, size_t granule_bytes = 1) {
    const uint64_t previous_end = next_;
    const uint64_t begin = FitsInCurrentChunk(bytes) ? next_ : RoundUp(next_, chunk_bytes_);
    // Most calls fit in one chunk and need no division.
    const size_t used_bytes = bytes <= chunk_bytes_ ? chunk_bytes_ : chunk_bytes_ - chunk_bytes_ % granule_bytes;
    const uint64_t full_chunks = bytes <= used_bytes ? 0 : (bytes - 1) / used_bytes;
    next_ = begin + full_chunks * chunk_bytes_ + RoundUp(bytes - full_chunks * used_bytes, kLineBytes);
    return {.previous_end = previous_end,
            .begin = begin,
            .chunk_bytes = chunk_bytes_,
            .count = bytes == 0 ? 0 : full_chunks + 1,
            .end = next_};
  }

  // Reserves positions for a collective whose data bypasses the rings.
  ChunkSequence ReserveLine() {
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

// One rank's access to the counters of all ranks. Thread-compatible.
class ChunkSync {
 public:
  explicit ChunkSync(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  const ShmWorld& world() const { return *world_; }

  // Describes the running collective for this rank's waits.
  RunningCollective Running(const CallInfo& info, size_t bytes_total) const {
    return {.self = world_->JobRank(world_->rank()),
            .op = info.op,
            .label = info.label,
            .limits = info.limits,
            .bytes_total = bytes_total};
  }

  // Publishes that this rank has completed `stage` for everything before `position`.
  void Publish(ShmStage stage, uint64_t position) { Publish(Counter(world_->rank(), stage), position); }

  // Waits until `rank` has completed `stage` for everything before `position`.
  // Errors: the job's failure; ABORTED if `rank` has departed; DEADLINE_EXCEEDED.
  absl::Status WaitFor(RankId rank, ShmStage stage, uint64_t position, const RunningCollective& running) {
    return WaitFor(rank, Counter(rank, stage), position, running);
  }

  // Stores `value` in a word that other ranks wait for, and wakes those that sleep. The value must never decrease.
  void Publish(std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // no instruction; only keeps the compiler from reordering
    if (world_->view().header().sleepers.load(std::memory_order_relaxed) != 0) WakeWaiters();
  }

  // Waits until `word`, which `rank` publishes, is at least `value`. Errors: those of the other WaitFor.
  absl::Status WaitFor(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                       const RunningCollective& running) {
    return word.load(std::memory_order_acquire) >= value ? absl::OkStatus() : WaitLonger(rank, word, value, running);
  }

  // Calls WaitFor() for every other member. REQUIRES: this rank is a member.
  absl::Status WaitForMembers(const Members& members, ShmStage stage, uint64_t position,
                              const RunningCollective& running);

  // Vetoes the collective that uses `chunks`. The veto ends the collective for this rank. Errors: those of WaitFor().
  absl::Status Veto(const ChunkSequence& chunks, const Ballot& ballot, const RunningCollective& running);

  // Approves the next collective that has a vote. Must be called before the collective's first chunk is packed.
  void Approve(const Ballot& ballot) { StoreVote(ballot.word()); }

  // Waits for all members' votes on the collective that uses `chunks`, and sets the result in `ballot`. A veto ends the
  // collective for this rank. REQUIRES: this rank has approved, and has packed the first chunk. Errors: those of
  // WaitFor().
  absl::Status CountVotes(const Members& members, const ChunkSequence& chunks, const RunningCollective& running,
                          Ballot* ballot);

  // Waits until no rank, inside or outside the group, still reads the bytes that chunk k will overwrite.
  absl::Status WaitForRoom(const ChunkSequence& chunks, uint64_t k, const RunningCollective& running);

  // Returns the address of `position` in the ring of `rank`.
  char* Data(RankId rank, uint64_t position) const { return world_->view().Data(rank, position); }

 private:
  std::atomic<uint64_t>& Counter(RankId rank, ShmStage stage) const {
    return world_->view().rank(rank).progress[static_cast<int>(stage)].position;
  }
  // Returns the word that `rank` uses in the current vote.
  std::atomic<uint8_t>& VoteOf(RankId rank) const {
    return world_->view().rank(rank).progress[static_cast<int>(ShmStage::kPacked)].votes[vote_turn_];
  }
  void StoreVote(uint8_t word) {
    vote_turn_ ^= 1;
    VoteOf(world_->rank()).store(word, std::memory_order_relaxed);
  }
  // Publishes that this rank has completed all stages for everything before `position`.
  void PublishAllStages(uint64_t position);
  absl::Status WaitLonger(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                          const RunningCollective& running);
  // Rings the doorbells of all ranks that sleep for this rank's progress.
  void WakeWaiters();
  // Wait briefly without sleeping. Return whether the word has reached the value.
  bool Spin(const std::atomic<uint64_t>& word, uint64_t value) const;
  bool Yield(const std::atomic<uint64_t>& word, uint64_t value) const;
  absl::Status Sleep(RankId rank, const std::atomic<uint64_t>& word, uint64_t value, const RunningCollective& running);

  const std::shared_ptr<ShmWorld> world_;
  uint64_t done_by_all_ = 0;  // every rank is known to be done up to this position
  int vote_turn_ = 0;  // index of the last vote's word; equal on all ranks, because all vote on the same collectives
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
