// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SMALL_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SMALL_REDUCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/collectives/shm/stream_writer.h"
#include "runtime/monitor/wait_watch.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Sends small contributions of all ranks of the job to every rank, in one step and without the rings.
//
// A contribution travels in *lines* of 64 bytes, each of which carries the number of its exchange (layout.h). Data in a
// ring takes two transfers between cores: first the counter that announces the data, then the data. A flat exchange
// takes only one, but copies the data once more, line by line, so it is only for small data.
//
// Exchanges use several sets of lines in turn (kShmFlatTurns). Before a rank writes to a set again, it has completed a
// later exchange, to which every rank contributed after its last use of the set. So a contribution of one line need not
// be copied, and is valid until the next exchange.
//
// After an exchange, the lines are in the caches of the ranks that read them, from which a store would have to fetch
// them first. So at the end of each exchange, a rank prefetches the lines of the exchange after next. Between cores
// that share no cache, and if the ranks start at the same time, an exchange of 4 bytes then takes 0.20 us instead of
// 0.32 us, and one of 1 KiB 0.43 us instead of 0.54 us.
//
// Votes (communicator.h) travel in the lowest bits of the first line's number.
//
// Thread-compatible. Does not own the ChunkSync.
class FlatExchange {
 public:
  explicit FlatExchange(ChunkSync& sync);

  // Returns the maximum size of a contribution.
  size_t max_bytes() const { return max_bytes_; }

  // Returns memory of max_bytes() bytes in which this rank may build its contribution.
  char* Scratch() { return ScratchOf(sync_.world().rank()); }

  // Sends each rank's `bytes` bytes at `own` to every rank. Every rank must make the same call. The caller must have
  // reserved `chunks` in the stream for the exchange, and must later publish that this rank is done with `chunks`. If
  // `ballot` is not null, holds the vote, and clears running.late_call when the result is known. If this rank vetoes,
  // `own` is not used. REQUIRES: bytes <= max_bytes(). Errors: those of ChunkSync::WaitFor().
  absl::Status Run(const char* own, size_t bytes, const ChunkSequence& chunks, Ballot* ballot,
                   RunningCollective& running);

  // Returns the contribution of `rank`, valid until the next Run().
  const char* Contribution(RankId rank) const { return contributions_[rank]; }

 private:
  absl::Status Veto(const ChunkSequence& chunks, uint8_t word, const RunningCollective& running);
  // `word` is this rank's vote, or 0 without a vote.
  void Write(const char* own, size_t bytes, uint64_t number, uint8_t word);
  // Waits for the lines of `rank`, and concatenates their payloads.
  absl::Status Read(RankId rank, size_t bytes, uint64_t number, const RunningCollective& running);
  // Waits for the first lines of all ranks.
  absl::Status AwaitAll(uint64_t number, const RunningCollective& running);
  // Returns the combined votes of the other ranks.
  uint8_t OtherVotes(uint64_t number) const;
  // Prefetches the lines that this rank will write in the exchange after next, and which are in their readers' caches.
  // Assumes that the later exchange will have as many lines as the current one.
  void Prefetch(size_t bytes) const;
  char* ScratchOf(RankId rank) { return scratch_.data() + static_cast<size_t>(rank) * max_bytes_; }
  ShmFlatLine* LinesOf(RankId rank) const { return lines_[rank] + turn_ * kShmFlatLines; }

  ChunkSync& sync_;
  const size_t max_bytes_;
  std::vector<ShmFlatLine*> lines_;         // of each rank
  std::vector<const char*> contributions_;  // of each rank
  std::vector<char> scratch_;               // max_bytes_ per rank
  size_t turn_ = 0;
};

// Executes small reductions by all ranks of the job. Every rank sends its contribution to every other rank, and reduces
// all contributions itself.
//
// The smallest contributions travel in the lines of a flat exchange. Larger ones travel in *blocks*: each rank writes
// its block to its ring, then takes part in a flat exchange without data, in which its line announces the block and
// carries the vote. The line is faster than a counter, because it is prefetched, while a counter would have to be
// fetched from the waiting ranks. The other ranks reduce directly from the block.
//
// Thread-compatible. Does not own the constructor's arguments.
class SmallReduce {
 public:
  SmallReduce(ChunkSync& sync, DataStream& stream, StreamWriter& writer, FlatExchange& flat);

  // Returns whether a reduction of this size is small enough for Run().
  bool IsSmall(size_t wire_bytes) const { return wire_bytes <= max_bytes_ && wire_bytes <= stream_.chunk_bytes(); }

  // Errors: those of ChunkSync::WaitFor(). REQUIRES: IsSmall(wire bytes); all ranks of the job take part. If the call
  // has a ballot, packing must not update residuals.
  absl::Status Run(const ReduceArithmetic& reduction);

  // Like Run(), but faster. REQUIRES: IsPlain(call); `bytes` is the size of the call's input.
  absl::Status RunPlain(const ReduceCall& call, size_t bytes);

 private:
  // This rank's contribution: bytes at an address, or a reduction that must be packed first.
  struct Contribution {
    const char* at = nullptr;
    const ReduceArithmetic* packed = nullptr;
    size_t bytes = 0;
    size_t granule_bytes = 1;
  };

  // Sends all contributions to all ranks, and fills sources_. Returns the stream position at which this call ends.
  absl::StatusOr<uint64_t> Exchange(const CallInfo& info, const Contribution& own, RunningCollective& running);
  absl::Status ExchangeLines(const CallInfo& info, const Contribution& own, const ChunkSequence& chunks,
                             RunningCollective& running);
  absl::Status ExchangeBlock(const CallInfo& info, const Contribution& own, const ChunkSequence& chunks,
                             RunningCollective& running);
  // Writes this rank's block to its ring.
  absl::Status WriteBlock(const Contribution& own, const ChunkSequence& chunks, const RunningCollective& running);
  // Publishes that this rank has finished the call.
  void Finish(const CallInfo& info, uint64_t end);

  ChunkSync& sync_;
  DataStream& stream_;
  StreamWriter& writer_;
  FlatExchange& flat_;
  const size_t max_bytes_;
  std::vector<const void*> sources_;  // the contribution of each rank
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SMALL_REDUCE_H_
