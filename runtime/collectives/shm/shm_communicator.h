#ifndef RONDA_RUNTIME_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
#define RONDA_RUNTIME_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/collectives/communicator.h"
#include "runtime/collectives/shm/chunk_sync.h"
#include "runtime/shm/shm_world.h"

namespace ronda {

// The collectives of ranks on one host, streamed through slots of shared memory; see chunk_sync.h for how a chunk is
// passed on, and shm_allreduce.h for the allreduce.
class ShmCommunicator : public Communicator {
 public:
  explicit ShmCommunicator(std::shared_ptr<ShmWorld> world) : sync_(std::move(world)) {}

  Capabilities capabilities() const override;
  RankId rank() const override { return sync_.world().rank(); }
  int size() const override { return sync_.world().size(); }

  absl::Status Allreduce(const AllreduceCall& call) override;
  absl::Status Broadcast(const BroadcastCall& call) override;
  absl::Status Allgather(const AllgatherCall& call) override;
  absl::Status Barrier(absl::string_view label) override;

 private:
  // The steps of Broadcast and Allgather for the collective's chunk k.
  absl::Status BroadcastChunk(const BroadcastCall& call, uint64_t k, RunningCollective& running);
  absl::Status SendGatheredChunk(const AllgatherCall& call, uint64_t k, const RunningCollective& running);
  absl::Status TakeGatheredChunk(const AllgatherCall& call, uint64_t k, RunningCollective& running);

  ChunkSync sync_;
  uint64_t next_chunk_ = 0;  // the number of chunks that the job has been through
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_COLLECTIVES_SHM_SHM_COMMUNICATOR_H_
