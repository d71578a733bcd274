#include "runtime/collectives/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/members.h"
#include "runtime/collectives/shm/shm_allreduce.h"
#include "runtime/collectives/shm/shm_alltoall.h"

namespace ronda {
namespace {

// The bytes of a buffer that chunk k carries; none if the buffer is shorter than others'.
struct Piece {
  size_t begin;
  size_t bytes;
};

Piece PieceOf(const ChunkSequence& chunks, uint64_t k, size_t bytes) {
  const size_t begin = std::min(bytes, k * chunks.chunk_bytes);
  return {.begin = begin, .bytes = std::min(chunks.chunk_bytes, bytes - begin)};
}

const char* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }
char* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }

}  // namespace

Capabilities ShmCommunicator::capabilities() const {
  return {.name = "shm", .max_ranks_per_process = std::numeric_limits<int>::max()};
}

absl::Status ShmCommunicator::Reduce(const ReduceCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  return ShmAllreduce(call, stream_, sync_, writer_).Run();
}

absl::Status ShmCommunicator::Broadcast(const BroadcastCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  RunningCollective running = {.op = OpType::kBroadcast, .label = call.info.label, .bytes_total = call.bytes};
  const ChunkSequence chunks = stream_.Take(call.bytes);
  for (uint64_t k = 0; k < chunks.count; ++k) {
    if (rank() == call.root) {
      RONDA_RETURN_IF_ERROR(SendChunk(chunks, k, call.data, call.bytes, running));
    } else {
      RONDA_RETURN_IF_ERROR(TakeChunk(chunks, k, call.root, call.data, call.bytes, running));
    }
    sync_.Publish(ShmStage::kDone, chunks.End(k));
  }
  writer_.Stop();
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Allgather(const AllgatherCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  RunningCollective running = {.op = OpType::kAllgather,
                               .label = call.info.label,
                               .bytes_total = std::accumulate(bytes.begin(), bytes.end(), size_t{0})};
  const ChunkSequence chunks = stream_.Take(*std::max_element(bytes.begin(), bytes.end()));
  if (chunks.count == 0) return absl::OkStatus();
  for (uint64_t step = 0; step < chunks.count + 1; ++step) {
    if (step < chunks.count) RONDA_RETURN_IF_ERROR(SendChunk(chunks, step, call.input, bytes[rank()], running));
    if (step >= 1) RONDA_RETURN_IF_ERROR(TakeChunkFromAll(chunks, step - 1, call, running));
  }
  writer_.Stop();
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Alltoall(const AlltoallCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  ShmAlltoall alltoall(call, Members(call.info, rank(), size()), stream_, sync_, writer_);
  return alltoall.Run();
}

absl::Status ShmCommunicator::Barrier(const CallInfo& info) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const RunningCollective running = {.op = OpType::kBarrier, .label = info.label};
  // A chunk that nobody writes or reads.
  const ChunkSequence chunks = stream_.Take(1);
  sync_.Publish(ShmStage::kPacked, chunks.end);
  RONDA_RETURN_IF_ERROR(sync_.WaitForAll(ShmStage::kPacked, chunks.end, running));
  sync_.Publish(ShmStage::kDone, chunks.end);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::SendChunk(const ChunkSequence& chunks, uint64_t k, const void* data, size_t bytes,
                                        const RunningCollective& running) {
  const Piece piece = PieceOf(chunks, k, bytes);
  writer_.Start(chunks.Begin(k), piece.bytes);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(chunks, k, running));
  writer_.Copy(At(data, piece.begin), piece.bytes, chunks.Begin(k));
  sync_.Publish(ShmStage::kPacked, chunks.End(k));
  return absl::OkStatus();
}

absl::Status ShmCommunicator::TakeChunk(const ChunkSequence& chunks, uint64_t k, RankId from, void* data, size_t bytes,
                                        RunningCollective& running) {
  const Piece piece = PieceOf(chunks, k, bytes);
  if (piece.bytes == 0) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(sync_.WaitFor(from, ShmStage::kPacked, chunks.End(k), running));
  std::memcpy(At(data, piece.begin), sync_.Data(from, chunks.Begin(k)), piece.bytes);
  running.bytes_done += piece.bytes;
  return absl::OkStatus();
}

absl::Status ShmCommunicator::TakeChunkFromAll(const ChunkSequence& chunks, uint64_t k, const AllgatherCall& call,
                                               RunningCollective& running) {
  char* to = static_cast<char*>(call.output);
  for (RankId peer = 0; peer < size(); ++peer) {
    const size_t bytes = call.bytes_per_rank[peer];
    RONDA_RETURN_IF_ERROR(TakeChunk(chunks, k, peer, to, bytes, running));
    to += bytes;
  }
  sync_.Publish(ShmStage::kDone, chunks.End(k));
  return absl::OkStatus();
}

}  // namespace ronda
