#include "runtime/collectives/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/shm/shm_alltoall.h"
#include "runtime/collectives/shm/shm_reduce.h"
#include "runtime/collectives/wire_layout.h"

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

// What a member of an allgather has, it need not take from its ring.
void CopyOwnPiece(const AllgatherCall& call, int self) {
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  if (bytes[self] == 0) return;
  std::memcpy(At(call.output, std::accumulate(bytes.begin(), bytes.begin() + self, size_t{0})), call.input,
              bytes[self]);
}

// The chunk nearest to `wanted` bytes of which the ring has a whole number, at least as many as a geometry must have
// slots: fewer, and ranks would wait for each other in a circle.
size_t ChunkBytesFor(const ShmGeometry& geometry, size_t wanted) {
  const auto has_room = [&](size_t chunk) { return geometry.RingBytes() / chunk >= kShmMinSlotCount; };
  size_t chunk = geometry.slot_bytes;
  if (wanted == 0) return chunk;
  while (chunk < wanted && geometry.RingBytes() % (2 * chunk) == 0 && has_room(2 * chunk)) chunk *= 2;
  while (chunk > std::max(wanted, kShmPageBytes) && chunk % (2 * kCacheLineBytes) == 0) chunk /= 2;
  return chunk;
}

}  // namespace

Capabilities ShmCommunicator::capabilities() const {
  return {.name = "shm", .max_ranks_per_process = std::numeric_limits<int>::max()};
}

absl::Status ShmCommunicator::FinishAt(uint64_t end) {
  sync_.Publish(ShmStage::kDone, end);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Reduce(const ReduceCall& call) {
  if (IsPlain(call) && call.info.group == nullptr) {
    const size_t bytes = call.segments.front().count * SizeOf(call.dtype);
    if (small_.Takes(bytes)) {
      RONDA_RETURN_IF_ERROR(sync_.world().failure());
      return small_.RunPlain(call, bytes);
    }
  }
  // Packing updates residuals: then the votes must be known before. (Only who has residuals knows that there are any.)
  if (call.info.ballot != nullptr && RoundsContributions(call.dtype, call.wire)) {
    RONDA_RETURN_IF_ERROR(Barrier(call.info));
    if (IsVetoed(call.info)) return absl::OkStatus();
    ReduceCall decided = call;
    decided.info.ballot = nullptr;
    return Reduce(decided);
  }
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(call.info, rank(), size());
  const ReduceArithmetic reduction(call, &reduction_memory_);
  if (members.size() == size() && small_.Takes(reduction.wire_bytes())) return small_.Run(reduction);
  ShmReduce reduce(reduction, members, stream_, sync_, writer_);
  return members.IncludeSelf() ? reduce.Run() : FinishAt(reduce.end());
}

absl::Status ShmCommunicator::Broadcast(const BroadcastCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(call.info, rank(), size());
  RunningCollective running = sync_.Running(call.info, call.bytes);
  const ChunkSequence chunks = stream_.Take(call.bytes);
  if (!members.IncludeSelf()) return FinishAt(chunks.end);
  for (uint64_t k = 0; k < chunks.count; ++k) {
    if (members.self() == call.root) {
      RONDA_RETURN_IF_ERROR(SendChunk(chunks, k, call.data, call.bytes, running));
    } else {
      RONDA_RETURN_IF_ERROR(TakeChunk(chunks, k, members[call.root], call.data, call.bytes, running));
    }
    sync_.Publish(ShmStage::kDone, chunks.End(k));
  }
  writer_.Stop();
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Allgather(const AllgatherCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(call.info, rank(), size());
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  const ChunkSequence chunks = stream_.Take(*std::max_element(bytes.begin(), bytes.end()));
  if (!members.IncludeSelf()) return FinishAt(chunks.end);
  const int self = members.self();
  const bool receives = call.receiver.value_or(self) == self;
  RunningCollective running = sync_.Running(call.info, std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  if (receives) CopyOwnPiece(call, self);
  for (uint64_t step = 0; step < chunks.count + 1; ++step) {
    if (step < chunks.count && call.receiver != self)
      RONDA_RETURN_IF_ERROR(SendChunk(chunks, step, call.input, bytes[self], running));
    if (step == 0) continue;
    if (receives) RONDA_RETURN_IF_ERROR(TakeChunkFromOthers(chunks, step - 1, call, members, running));
    sync_.Publish(ShmStage::kDone, chunks.End(step - 1));
  }
  writer_.Stop();
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Alltoall(const AlltoallCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(call.info, rank(), size());
  ShmAlltoall alltoall(call, members, stream_, sync_, writer_);
  return members.IncludeSelf() ? alltoall.Run() : FinishAt(alltoall.end());
}

absl::Status ShmCommunicator::Barrier(const CallInfo& info) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(info, rank(), size());
  const ChunkSequence place = stream_.TakeLine();
  RunningCollective running = sync_.Running(info, /*bytes_total=*/0);
  if (members.size() == size()) {
    std::optional<LateCall> late_call;
    if (info.ballot != nullptr) running.late_call = &late_call.emplace(info.ballot->when_late);
    RONDA_RETURN_IF_ERROR(flat_.Run(nullptr, 0, place, info.ballot, running));
  } else if (members.IncludeSelf()) {
    sync_.Publish(ShmStage::kPacked, place.end);
    RONDA_RETURN_IF_ERROR(sync_.WaitForMembers(members, ShmStage::kPacked, place.end, running));
  }
  return FinishAt(place.end);
}

void ShmCommunicator::Tune(const Tuning& tuning) {
  stream_.set_chunk_bytes(ChunkBytesFor(sync_.world().view().geometry(), tuning.chunk_bytes));
}

absl::Status ShmCommunicator::SendChunk(const ChunkSequence& chunks, uint64_t k, const void* data, size_t bytes,
                                        const RunningCollective& running) {
  const Piece piece = PieceOf(chunks, k, bytes);
  if (piece.bytes == 0) return absl::OkStatus();
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

absl::Status ShmCommunicator::TakeChunkFromOthers(const ChunkSequence& chunks, uint64_t k, const AllgatherCall& call,
                                                  const Members& members, RunningCollective& running) {
  char* to = static_cast<char*>(call.output);
  for (int member = 0; member < members.size(); ++member) {
    const size_t bytes = call.bytes_per_rank[member];
    if (member != members.self()) RONDA_RETURN_IF_ERROR(TakeChunk(chunks, k, members[member], to, bytes, running));
    to += bytes;
  }
  return absl::OkStatus();
}

}  // namespace ronda
