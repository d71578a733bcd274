// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/collectives/communicator.h"
#include "runtime/collectives/reduce_arithmetic.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/collectives/shm/small_reduce.h"
#include "runtime/collectives/shm/stream_writer.h"
#include "runtime/collectives/transport.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// Executes collectives of ranks on one host, whose data streams through ring buffers in shared memory (chunk_sync.h).
// ShmReduce executes large reductions, and SmallReduce small ones.
class ShmCommunicator : public Communicator {
 public:
  explicit ShmCommunicator(const std::shared_ptr<ShmWorld>& world)
      : sync_(world),
        writer_(world),
        stream_(world->options().slot_bytes),
        flat_(sync_),
        small_(sync_, stream_, writer_, flat_) {}

  RankId rank() const override { return sync_.world().rank(); }
  int size() const override { return sync_.world().size(); }

  absl::Status Reduce(const ReduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Alltoall(const AlltoallCall& call) override;
  absl::Status Barrier(const CallInfo& info) override;
  void Tune(const Tuning& tuning) override;

 private:
  // Publishes that this rank no longer reads anything before position `end`. This is all that a rank outside a
  // collective's group does.
  absl::Status FinishAt(uint64_t end);
  // Send or receive chunk k of a broadcast or allgather, which carries part of the `bytes` bytes at `data`.
  absl::Status SendChunk(const ChunkSequence& chunks, uint64_t k, const void* data, size_t bytes,
                         const RunningCollective& running);
  absl::Status ReceiveChunk(const ChunkSequence& chunks, uint64_t k, RankId from, void* data, size_t bytes,
                            RunningCollective& running);
  absl::Status ReceiveChunkFromOthers(const ChunkSequence& chunks, uint64_t k, const AllgatherCall& call,
                                      const Members& members, RunningCollective& running);

  ChunkSync sync_;
  StreamWriter writer_;
  DataStream stream_;
  FlatExchange flat_;
  SmallReduce small_;
  LogicalBuffer::Memory reduction_memory_;
};

// Connects this rank to the other ranks of its host through shared memory, and waits for all of them. Errors: those of
// ShmWorld::Connect().
absl::StatusOr<Transport> ConnectShmTransport(ShmWorld::Options options);

// Returns the transports of all ranks of a job whose ranks are threads of this process. Errors: those of
// ShmWorld::ConnectInProcess().
absl::StatusOr<std::vector<Transport>> ConnectShmTransportsInProcess(ShmWorld::Options options);

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
