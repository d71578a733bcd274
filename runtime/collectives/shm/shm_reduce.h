// SPDX-License-Identifier: Apache-2.0

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

// Executes one reduction through shared memory, chunk by chunk, without copying the tensors into one buffer. Data in
// transit stays in the cache. There are two algorithms, whose results have the same bits:
//
// - full exchange: pack(k) | reduce all members' chunk k-1 into the output. Every rank reduces everything that it
//   receives. This takes one wait less, and is used for two ranks, for small data, and for calls in which each rank
//   receives a different part. In such calls, each element is still reduced only once.
// - shards: pack(k) | reduce this rank's shard of chunk k-1 in its own ring | unpack all shards of chunk k-2 into the
//   output. Each element is reduced once.
//
// In-place calls are safe, because only the rank itself writes to its outputs, and only after it has packed the chunk.
//
// Thread-compatible.
class ShmReduce {
 public:
  // Reserves positions in `stream`. All arguments must outlive this object.
  ShmReduce(const ReduceArithmetic& reduction, const Members& members, DataStream& stream, ChunkSync& sync,
            StreamWriter& writer);

  // REQUIRES: this rank is a member. If the call has a ballot, packing must not update residuals.
  absl::Status Run();

  // Returns the position at which the next collective starts.
  uint64_t end() const { return chunks_.end; }

 private:
  // A range of granules, counted in the call or in one of its chunks.
  struct Range {
    size_t begin;
    size_t count;
  };
  static constexpr Range kNothing = {.begin = 0, .count = 0};

  enum class Algorithm { kFullExchange, kParts, kShards };
  static Algorithm ChooseAlgorithm(const ReduceArithmetic& reduction, const Members& members);

  // Packs the first chunk, and holds the call's vote, which travels with this chunk.
  absl::Status Begin();
  // Each of these functions runs one of the algorithms after Begin.
  absl::Status RunFullExchange();
  absl::Status RunByShards();

  // Packs chunk k, except for data that no other rank reads.
  absl::Status Pack(uint64_t k);
  // Packs chunk k, except for the granules of `left_out`.
  absl::Status PackChunk(uint64_t k, Range left_out);
  // Packs chunk k, except for data that only this rank receives.
  absl::Status PackForOthers(uint64_t k);
  void PackRange(uint64_t k, Range range);
  absl::Status DeliverChunk(uint64_t k);
  absl::Status ReduceOwnShard(uint64_t k);
  absl::Status UnpackShards(uint64_t k);
  // Finds all members' contributions to `run`, whose position in the stream is `position`.
  void FindSources(const ReduceArithmetic::Run& run, uint64_t position);
  bool WantsAnyOf(uint64_t k) const;
  void FinishChunk(uint64_t k);

  Range ChunkOf(uint64_t k) const;                        // in the call
  Range ShardOf(int member, uint64_t k) const;            // in chunk k
  uint64_t PositionOf(uint64_t k, size_t granule) const;  // the stream position of a granule of chunk k

  const Members members_;
  const ReduceArithmetic& reduction_;
  const Algorithm algorithm_;
  const size_t granule_bytes_;
  const ChunkSequence chunks_;
  ChunkSync& sync_;
  StreamWriter& writer_;
  std::optional<LateCall> late_call_;  // until the votes are counted
  RunningCollective running_;
  absl::InlinedVector<const void*, 16> sources_;  // one per member
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_REDUCE_H_
