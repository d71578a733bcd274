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
#include "runtime/collectives/shm/data_stream.h"
#include "runtime/collectives/shm/flat_exchange.h"
#include "runtime/collectives/shm/stream_writer.h"
#include "runtime/monitor/wait_watch.h"

namespace ronda {

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
