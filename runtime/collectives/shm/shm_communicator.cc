#include "runtime/collectives/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/shm/shm_allreduce.h"

namespace ronda {
namespace {

// The bytes of chunk k of a buffer.
struct Piece {
  size_t begin;
  size_t bytes;
};

Piece PieceOf(uint64_t k, size_t chunk_bytes, size_t bytes) {
  const size_t begin = std::min(bytes, k * chunk_bytes);
  return {.begin = begin, .bytes = std::min(chunk_bytes, bytes - begin)};
}

uint64_t ChunkCount(size_t bytes, size_t chunk_bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }

void Copy(void* to, const void* from, size_t bytes) {
  // An empty buffer may be a null pointer, which memcpy does not take.
  if (bytes > 0) std::memcpy(to, from, bytes);
}

const char* At(const void* base, size_t offset) { return static_cast<const char*>(base) + offset; }
char* At(void* base, size_t offset) { return static_cast<char*>(base) + offset; }

}  // namespace

Capabilities ShmCommunicator::capabilities() const {
  return {.name = "shm", .max_ranks_per_process = std::numeric_limits<int>::max()};
}

absl::Status ShmCommunicator::Allreduce(const AllreduceCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  ShmAllreduce allreduce(call, next_chunk_, sync_);
  next_chunk_ += allreduce.chunk_count();
  return allreduce.Run();
}

absl::Status ShmCommunicator::Broadcast(const BroadcastCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  RunningCollective running = {.op = OpType::kBroadcast, .label = call.label, .bytes_total = call.bytes};
  const uint64_t chunks = ChunkCount(call.bytes, sync_.world().options().slot_bytes);
  for (uint64_t k = 0; k < chunks; ++k) RONDA_RETURN_IF_ERROR(BroadcastChunk(call, k, running));
  next_chunk_ += chunks;
  return absl::OkStatus();
}

absl::Status ShmCommunicator::BroadcastChunk(const BroadcastCall& call, uint64_t k, RunningCollective& running) {
  const uint64_t chunk = next_chunk_ + k;
  const Piece piece = PieceOf(k, sync_.world().options().slot_bytes, call.bytes);
  if (rank() == call.root) {
    RONDA_RETURN_IF_ERROR(sync_.WaitForSlot(chunk, running));
    Copy(sync_.Slot(call.root, chunk), At(call.data, piece.begin), piece.bytes);
    sync_.Publish(ShmStage::kPacked, chunk + 1);
  } else {
    RONDA_RETURN_IF_ERROR(sync_.WaitFor(call.root, ShmStage::kPacked, chunk + 1, running));
    Copy(At(call.data, piece.begin), sync_.Slot(call.root, chunk), piece.bytes);
  }
  sync_.Publish(ShmStage::kDone, chunk + 1);
  running.bytes_done += piece.bytes;
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Allgather(const AllgatherCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  RunningCollective running = {.op = OpType::kAllgather,
                               .label = call.label,
                               .bytes_total = std::accumulate(bytes.begin(), bytes.end(), size_t{0})};
  const uint64_t chunks = ChunkCount(*std::max_element(bytes.begin(), bytes.end()), sync_.world().options().slot_bytes);
  for (uint64_t step = 0; step < chunks + 1; ++step) {
    if (step < chunks) RONDA_RETURN_IF_ERROR(SendGatheredChunk(call, step, running));
    if (step >= 1) RONDA_RETURN_IF_ERROR(TakeGatheredChunk(call, step - 1, running));
  }
  next_chunk_ += chunks;
  return absl::OkStatus();
}

absl::Status ShmCommunicator::SendGatheredChunk(const AllgatherCall& call, uint64_t k,
                                                const RunningCollective& running) {
  const uint64_t chunk = next_chunk_ + k;
  const Piece piece = PieceOf(k, sync_.world().options().slot_bytes, call.bytes_per_rank[rank()]);
  RONDA_RETURN_IF_ERROR(sync_.WaitForSlot(chunk, running));
  Copy(sync_.Slot(rank(), chunk), At(call.input, piece.begin), piece.bytes);
  sync_.Publish(ShmStage::kPacked, chunk + 1);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::TakeGatheredChunk(const AllgatherCall& call, uint64_t k, RunningCollective& running) {
  const uint64_t chunk = next_chunk_ + k;
  size_t offset = 0;  // of the peer's data in the output
  for (RankId peer = 0; peer < size(); ++peer) {
    const Piece piece = PieceOf(k, sync_.world().options().slot_bytes, call.bytes_per_rank[peer]);
    if (piece.bytes > 0) {
      RONDA_RETURN_IF_ERROR(sync_.WaitFor(peer, ShmStage::kPacked, chunk + 1, running));
      Copy(At(call.output, offset + piece.begin), sync_.Slot(peer, chunk), piece.bytes);
    }
    running.bytes_done += piece.bytes;
    offset += call.bytes_per_rank[peer];
  }
  sync_.Publish(ShmStage::kDone, chunk + 1);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Barrier(absl::string_view label) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const RunningCollective running = {.op = OpType::kBarrier, .label = label};
  // A chunk without content.
  const uint64_t chunk = next_chunk_++;
  sync_.Publish(ShmStage::kPacked, chunk + 1);
  RONDA_RETURN_IF_ERROR(sync_.WaitForAll(ShmStage::kPacked, chunk + 1, running));
  sync_.Publish(ShmStage::kDone, chunk + 1);
  return absl::OkStatus();
}

}  // namespace ronda
