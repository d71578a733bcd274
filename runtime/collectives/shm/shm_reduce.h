#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SHM_REDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SHM_REDUCE_H_

#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/collectives/shm/stream_writer.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

// One reduction through shared memory, streamed chunk by chunk: nothing is ever copied into one buffer, and what is in
// flight stays in the cache. Two ways, which give the same bits:
//
// - full exchange: pack(k) | reduce all members' chunk k-1 into the output. Every rank reduces what it receives: one
//   step less to wait for. For two ranks, for little data, and wherever each rank receives another part: then each
//   element is reduced once this way too.
// - by shards: pack(k) | reduce this rank's shard of chunk k-1, in its own ring | unpack all shards of chunk k-2 into
//   the output. Each element is reduced once.
//
// In place is safe: a chunk's outputs are written after its own rank has packed it, and by that rank only.
//
// Lives as long as the call. Thread-compatible.
class ShmReduce {
 public:
  // Takes its place in `stream`. What the arguments refer to must outlive it.
  ShmReduce(const ReduceArithmetic& reduction, const Members& members, DataStream& stream, ChunkSync& sync,
            StreamWriter& writer);

  // REQUIRES: this rank is a member. The call has no ballot if packing has effects that a veto would have to undo.
  absl::Status Run();

  // Where the next collective begins in the stream.
  uint64_t end() const { return chunks_.end; }

 private:
  // Granules of the call, or of one of its chunks.
  struct Range {
    size_t begin;
    size_t count;
  };
  static constexpr Range kNothing = {.begin = 0, .count = 0};

  enum class Way { kFullExchange, kParts, kShards };
  static Way WayOf(const ReduceArithmetic& reduction, const Members& members);

  // Packs the first chunk; the ranks' votes travel with it.
  absl::Status Begin();
  // The rest.
  absl::Status RunFullExchange();
  absl::Status RunByShards();

  // Packs chunk k but for what no other rank will read.
  absl::Status Pack(uint64_t k);
  // Packs chunk k but for the granules of `left_out`.
  absl::Status PackChunk(uint64_t k, Range left_out);
  // Packs chunk k but for what this rank alone will receive.
  absl::Status PackForOthers(uint64_t k);
  void PackRange(uint64_t k, Range range);
  absl::Status DeliverChunk(uint64_t k);
  absl::Status ReduceOwnShard(uint64_t k);
  absl::Status UnpackShards(uint64_t k);
  // Looks up where all members' contributions to `run` lie, which begins at `position` of the stream.
  void FindSources(const ReduceArithmetic::Run& run, uint64_t position);
  bool WantsAnyOf(uint64_t k) const;
  void FinishChunk(uint64_t k);

  Range ChunkOf(uint64_t k) const;                        // in the call
  Range ShardOf(int member, uint64_t k) const;            // in chunk k
  uint64_t PositionOf(uint64_t k, size_t granule) const;  // of a granule of chunk k

  const Members members_;
  const ReduceArithmetic& reduction_;
  const Way way_;
  const size_t granule_bytes_;
  const ChunkSequence chunks_;
  ChunkSync& sync_;
  StreamWriter& writer_;
  std::optional<LateCall> late_call_;  // until the votes are counted
  RunningCollective running_;
  absl::InlinedVector<const void*, 16> sources_;  // one a member
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_REDUCE_H_
