// SPDX-License-Identifier: Apache-2.0

// The ranks of a host pass chunks to each other through ring buffers in shared memory. This file synchronises them.
//
// Vocabulary: all collectives of a job together form one *stream* of data. A *position* is a number of bytes from the
// beginning of the stream, and means the same on every rank. Each rank keeps the newest part of its stream in a *ring*.
// Each rank publishes three counters, which are positions. Up to *packed*, the rank's contribution is in its ring. Up
// to *reduced*, the rank's shard of the result is in its ring. Up to *done*, the rank no longer reads other ranks'
// data. The counters only grow.
//
// Memory ordering: a rank writes its ring, then stores its counter. A reader first loads the counter (acquire), so it
// sees the bytes in the ring. After a rank has read the rings, it stores `done`. Before a rank overwrites a part of its
// ring, it loads the `done` counters of all ranks, so their reads have ended.
//
// Sleeping: a waiter stores waits_for, adds itself to `sleepers`, then checks the counter again. A publisher stores its
// counter, checks `sleepers`, checks waits_for, and rings the waiter's doorbell. (doorbell.h explains why no ring is
// lost.) There is no fence between the store of the counter and the check of `sleepers`. A fence would wait until the
// stored cache lines come back from the core that read them last, so every hand-over would take longer. Without a
// fence, other cores may not see the store yet when the publisher finds no sleeper. But they see it soon, and the
// compiler does not reorder the store and the check. Therefore a waiter sleeps for long only if its check fails again
// when kStoresArrive has passed since it announced itself. Even then it wakes up every second, in case the publisher is
// stopped before it rings.
//
// Votes (communicator.h): a rank stores its vote in a word beside its `packed` counter, and then stores the counter. A
// rank that has loaded the counter (acquire) sees the word. When all ranks have packed their first chunk, and before
// any output is written, every rank reads all words. Votes use two words alternately, so a rank overwrites the word of
// vote n in vote n + 2. By then all ranks have read it. If the rank approved in vote n + 1, all ranks had reached vote
// n + 1. If it vetoed, it waited until all other ranks had finished the collective of vote n.
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

// The positions of one collective's chunks in the stream.
//
// Every chunk except the last has chunk_bytes. A rank keeps the byte at position p at offset p modulo the size of its
// ring. The size of the ring is a multiple of chunk_bytes, and no chunk crosses a multiple of chunk_bytes, so every
// chunk is contiguous.
struct ChunkSequence {
  uint64_t previous_end;  // the end of the previous collective
  uint64_t begin;
  size_t chunk_bytes;
  uint64_t count;
  uint64_t end;

  uint64_t Begin(uint64_t k) const { return begin + k * chunk_bytes; }
  uint64_t End(uint64_t k) const { return std::min(end, begin + (k + 1) * chunk_bytes); }
};

// Assigns each collective of a job its positions in the stream. All ranks must make the same calls, so they get the
// same positions.
class DataStream {
 public:
  explicit DataStream(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  size_t chunk_bytes() const { return chunk_bytes_; }

  // The new size applies to later collectives. All ranks must call this function at the same point in the sequence of
  // calls.
  void set_chunk_bytes(size_t chunk_bytes) { chunk_bytes_ = chunk_bytes; }

  // Reserves positions for `bytes` bytes of each rank. No granule is cut by the end of a chunk, so a chunk may end with
  // an unused part that is smaller than a granule. Small reservations share a chunk. So the stream goes round the whole
  // ring before it reuses a cache line that another core has read recently. REQUIRES: bytes is a multiple of
  // granule_bytes, which is at most chunk_bytes().
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

  // Reserves positions for a collective whose data does not go through the rings.
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

// Gives one rank access to the counters of all ranks. Thread-compatible.
class ChunkSync {
 public:
  explicit ChunkSync(std::shared_ptr<ShmWorld> world) : world_(std::move(world)) {}

  const ShmWorld& world() const { return *world_; }

  // Returns a description of the collective that this rank runs, for its waits.
  RunningCollective Running(const CallInfo& info, size_t bytes_total) const {
    return {.self = world_->JobRank(world_->rank()),
            .op = info.op,
            .label = info.label,
            .limits = info.limits,
            .bytes_total = bytes_total};
  }

  // Announces that this rank has completed `stage` for everything before `position`.
  void Publish(ShmStage stage, uint64_t position) { Publish(Counter(world_->rank(), stage), position); }

  // Waits until `rank` has completed `stage` for everything before `position`.
  // Errors: the job's failure; ABORTED if `rank` has departed; DEADLINE_EXCEEDED.
  absl::Status WaitFor(RankId rank, ShmStage stage, uint64_t position, const RunningCollective& running) {
    return WaitFor(rank, Counter(rank, stage), position, running);
  }

  // Stores `value` in a word on which other ranks wait, and wakes the sleeping ranks. The value must never decrease.
  void Publish(std::atomic<uint64_t>& word, uint64_t value) {
    word.store(value, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // no instruction: the compiler keeps the order
    if (world_->view().header().sleepers.load(std::memory_order_relaxed) != 0) WakeWaiters();
  }

  // Waits until `word`, which `rank` publishes, is at least `value`. Errors: the same errors as the other WaitFor.
  absl::Status WaitFor(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                       const RunningCollective& running) {
    return word.load(std::memory_order_acquire) >= value ? absl::OkStatus() : WaitLonger(rank, word, value, running);
  }

  // Calls WaitFor for every other member. REQUIRES: this rank is a member.
  absl::Status WaitForMembers(const Members& members, ShmStage stage, uint64_t position,
                              const RunningCollective& running);

  // Vetoes the collective that uses `chunks`, and ends this rank's part in the collective. Errors: as WaitFor.
  absl::Status Veto(const ChunkSequence& chunks, const Ballot& ballot, const RunningCollective& running);

  // Approves the next collective that has a vote. Must be called before this rank packs the first chunk.
  void Approve(const Ballot& ballot) { StoreVote(ballot.word()); }

  // Waits for all members' votes on the collective that uses `chunks`, and sets the result in `ballot`. A veto ends
  // this rank's part in the collective. REQUIRES: this rank has approved, and has packed the first chunk. Errors: as
  // WaitFor.
  absl::Status CountVotes(const Members& members, const ChunkSequence& chunks, const RunningCollective& running,
                          Ballot* ballot);

  // Waits until no rank, inside or outside the group, still reads the bytes that chunk k of `chunks` will overwrite.
  absl::Status WaitForRoom(const ChunkSequence& chunks, uint64_t k, const RunningCollective& running);

  // Returns the address of `position` in the ring of `rank`.
  char* Data(RankId rank, uint64_t position) const { return world_->view().Data(rank, position); }

 private:
  std::atomic<uint64_t>& Counter(RankId rank, ShmStage stage) const {
    return world_->view().rank(rank).progress[static_cast<int>(stage)].position;
  }
  // Returns the word with the vote of `rank` in the vote under way.
  std::atomic<uint8_t>& VoteOf(RankId rank) const {
    return world_->view().rank(rank).progress[static_cast<int>(ShmStage::kPacked)].votes[vote_turn_];
  }
  void StoreVote(uint8_t word) {
    vote_turn_ ^= 1;
    VoteOf(world_->rank()).store(word, std::memory_order_relaxed);
  }
  // Announces that this rank has completed all stages for everything before `position`.
  void PublishAllStages(uint64_t position);
  absl::Status WaitLonger(RankId rank, const std::atomic<uint64_t>& word, uint64_t value,
                          const RunningCollective& running);
  // Rings the doorbells of all ranks that sleep until this rank makes progress.
  void WakeWaiters();
  // These functions wait a moment without sleeping. They return whether the word has reached the value.
  bool Spin(const std::atomic<uint64_t>& word, uint64_t value) const;
  bool Yield(const std::atomic<uint64_t>& word, uint64_t value) const;
  absl::Status Sleep(RankId rank, const std::atomic<uint64_t>& word, uint64_t value, const RunningCollective& running);

  const std::shared_ptr<ShmWorld> world_;
  uint64_t done_by_all_ = 0;  // every rank is known to be done up to this position
  int vote_turn_ = 0;         // the word of the last vote; equal on all ranks, because all vote on the same collectives
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_CHUNK_SYNC_H_
