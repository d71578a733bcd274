#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SMALL_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SMALL_REDUCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/collectives/shm/stream_writer.h"
#include "runtime/monitor/wait_watch.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Gives every rank of the job the contributions of all, if they are small: in one step, without a place in the rings.
//
// A contribution travels in lines of 64 bytes that carry the number of their exchange (layout.h). A stream takes two
// transfers between cores, first the counter that says that there is data, then the data; this takes one. The price is
// that data is copied once more, line by line, so it is for little data only.
//
// Exchanges use several sets of lines by turns (kShmFlatTurns): a rank that writes a set again has completed an
// exchange to which all have contributed after they had used the set. So a contribution of one line is used where it
// lies until the next exchange.
//
// A line that was read is in its readers' caches, and the next store to it would have to take it from there first, for
// as long as a transfer takes. So at the end of each exchange a rank asks for the lines of the one after the next: 4
// bytes took 0.32 us without that between cores that share no cache, and take 0.20 when the ranks come at the same
// time; 1 KiB takes 0.43 us instead of 0.54.
//
// Votes (communicator.h) travel in the number of the first line.
//
// Thread-compatible. The sync is not owned.
class FlatExchange {
 public:
  explicit FlatExchange(ChunkSync& sync);

  // The most bytes that a rank may contribute.
  size_t max_bytes() const { return max_bytes_; }

  // max_bytes() bytes in which this rank's contribution may be put together.
  char* Scratch() { return ScratchOf(sync_.world().rank()); }

  // Brings every rank's `bytes` bytes, here those at `own`, to every rank. Every rank makes the same call, at `place`
  // in the stream, which it has taken for it, and says itself that it is done with. If ballot is not null, the vote is
  // held, and running.late_call stands until it has been; `own` is not looked at by a rank that vetoes.
  // REQUIRES: bytes <= max_bytes().
  // Errors: as ChunkSync::WaitFor.
  absl::Status Run(const char* own, size_t bytes, const ChunkSequence& place, Ballot* ballot,
                   RunningCollective& running);

  // Where the contribution of `rank` lies after Run, until the next.
  const char* Contribution(RankId rank) const { return contributions_[rank]; }

 private:
  absl::Status Veto(const ChunkSequence& place, const RunningCollective& running);
  void Write(const char* own, size_t bytes, uint64_t number);
  // Waits for the lines of `rank`, and finds or makes its contribution in one piece.
  absl::Status Read(RankId rank, size_t bytes, uint64_t number, const RunningCollective& running);
  // Waits for the first lines of all ranks.
  absl::Status AwaitAll(uint64_t number, const RunningCollective& running);
  bool IsVetoed(uint64_t number) const;
  // Takes the lines of the exchange after the next back from those who have read them, if it is like this one.
  void TakeBack(size_t bytes) const;
  char* ScratchOf(RankId rank) { return scratch_.data() + static_cast<size_t>(rank) * max_bytes_; }
  ShmFlatLine* LinesOf(RankId rank) const { return lines_[rank] + turn_ * kShmFlatLines; }

  ChunkSync& sync_;
  const size_t max_bytes_;
  std::vector<ShmFlatLine*> lines_;         // of each rank
  std::vector<const char*> contributions_;  // of each rank
  std::vector<char> scratch_;               // max_bytes_ a rank
  size_t turn_ = 0;
};

// Reductions of little data by all ranks of the job: everybody sends everything to everybody, once, and reduces all of
// it.
//
// The least data travels in the lines of a flat exchange; more in a block, which each rank writes into its ring before
// it takes part in a flat exchange without data. That line says that the block is there, and carries the vote: it is
// taken back from its last readers ahead of time, where a counter of the stream would have to be fetched from who
// waits for it. Others reduce straight from the block.
//
// Thread-compatible. What the constructor gets is not owned.
class SmallReduce {
 public:
  SmallReduce(ChunkSync& sync, DataStream& stream, StreamWriter& writer, FlatExchange& flat);

  // Whether reductions of this size are small.
  bool Takes(size_t wire_bytes) const { return wire_bytes <= max_bytes_ && wire_bytes <= stream_.chunk_bytes(); }

  // Errors: as ChunkSync::WaitFor.
  // REQUIRES: Takes the size; all ranks of the job take part. A call with a ballot has no effects of packing.
  absl::Status Run(const ReduceArithmetic& reduction);

  // The same in less time. REQUIRES: IsPlain(call), whose input has `bytes` bytes.
  absl::Status RunPlain(const ReduceCall& call, size_t bytes);

 private:
  // What this rank sends: bytes that lie somewhere, or else what is to be packed.
  struct Contribution {
    const char* at = nullptr;
    const ReduceArithmetic* packed = nullptr;
    size_t bytes = 0;
    size_t granule_bytes = 1;
  };

  // Brings all contributions to all ranks, and finds them. Returns where this rank's place in the stream ends.
  absl::StatusOr<uint64_t> Exchange(const CallInfo& info, const Contribution& own, RunningCollective& running);
  absl::Status ExchangeLines(const CallInfo& info, const Contribution& own, const ChunkSequence& place,
                             RunningCollective& running);
  absl::Status ExchangeBlock(const CallInfo& info, const Contribution& own, const ChunkSequence& place,
                             RunningCollective& running);
  // Writes the own block into the ring.
  absl::Status WriteBlock(const Contribution& own, const ChunkSequence& place, const RunningCollective& running);
  // Says that this rank is done with its place.
  void Finish(const CallInfo& info, uint64_t end);

  ChunkSync& sync_;
  DataStream& stream_;
  StreamWriter& writer_;
  FlatExchange& flat_;
  const size_t max_bytes_;
  std::vector<const void*> sources_;  // of each rank: its contribution
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SMALL_REDUCE_H_
