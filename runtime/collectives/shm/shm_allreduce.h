#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SHM_ALLREDUCE_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SHM_ALLREDUCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/logical_buffer.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/collectives/shm/data_stream.h"
#include "runtime/collectives/shm/stream_writer.h"

namespace ronda {

// One allreduce through shared memory, streamed chunk by chunk: nothing is ever copied into one buffer, and what is in
// flight stays in the cache. Two ways, which give the same bits:
//
// - full exchange: pack(k) | reduce all ranks' chunk k-1 into the output. Everybody reduces everything: one step less
// to
//   wait for. For two ranks, and for little data.
// - by shards: pack(k) | reduce this rank's shard of chunk k-1, in its own ring | unpack all shards of chunk k-2 into
// the
//   output. Each element is reduced once.
//
// In place is safe: a chunk's outputs are written after its own rank has packed it, and by that rank only.
//
// Lives as long as the call. Thread-compatible.
class ShmAllreduce {
 public:
  // Takes its place in `stream`.
  ShmAllreduce(const ReduceCall& call, DataStream& stream, ChunkSync& sync, StreamWriter& writer);

  absl::Status Run();

 private:
  // Elements of the call, or of one of its chunks.
  struct Range {
    size_t begin;
    size_t count;
  };
  static constexpr Range kNothing = {.begin = 0, .count = 0};

  absl::Status RunFullExchange();
  absl::Status RunByShards();

  // Packs chunk k but for the elements of `left_out`, which no other rank will read.
  absl::Status PackChunk(uint64_t k, Range left_out);
  void PackRange(uint64_t k, Range range);
  absl::Status ReduceChunk(uint64_t k);
  absl::Status ReduceOwnShard(uint64_t k);
  // Reduces all ranks' contributions to `range` of chunk k into `ring`, or into the outputs if that is nullptr.
  void Reduce(uint64_t k, Range range, char* ring);
  absl::Status UnpackShards(uint64_t k);
  void FinishChunk(uint64_t k);

  Range ChunkOf(uint64_t k) const;                     // in the call
  Range ShardOf(RankId rank, uint64_t k) const;        // in chunk k
  uint64_t PositionOf(uint64_t k, Range range) const;  // of the first element of `range` of chunk k

  const ReduceCall& call_;
  const LogicalBuffer buffer_;
  const DType wire_;
  const size_t wire_bytes_;  // of an element
  // The own contribution is then read where it is: its lines are in the cache, where the output is needed if in place.
  const bool contributes_input_itself_;
  const ChunkSequence chunks_;
  ChunkSync& sync_;
  StreamWriter& writer_;
  RunningCollective running_;
  std::vector<const void*> sources_;  // one a rank
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_ALLREDUCE_H_
