// SPDX-License-Identifier: Apache-2.0

#include "runtime/collectives/shm/shm_communicator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/status_macros.h"
#include "runtime/collectives/reduce_layout.h"
#include "runtime/collectives/shm/shm_reduce.h"
#include "runtime/control/shm/shm_control_plane.h"

namespace ronda {
namespace {

// Reserves enough chunks for `bytes` bytes of a rank if each chunk carries a slice of every piece. Each slice gets an
// extra byte, because its length may be rounded up.
ChunkSequence ReserveRoom(DataStream& stream, size_t bytes, int members) {
  if (bytes <= stream.chunk_bytes()) return stream.Reserve(bytes);
  const size_t usable = stream.chunk_bytes() - static_cast<size_t>(members);
  return stream.Reserve((bytes + usable - 1) / usable * stream.chunk_bytes());
}

// The part of a buffer in chunk k. Empty if the buffer ends before chunk k, because other members have longer buffers.
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

// Copies this rank's own input to its output, bypassing shared memory.
void CopyOwnPiece(const AllgatherCall& call, int self) {
  const absl::Span<const size_t> bytes = call.bytes_per_rank;
  if (bytes[self] == 0) return;
  std::memcpy(At(call.output, std::accumulate(bytes.begin(), bytes.begin() + self, size_t{0})), call.input,
              bytes[self]);
}

// Returns the chunk size closest to `wanted` that divides the ring into at least kShmMinSlotCount chunks. With fewer
// chunks, ranks could deadlock.
size_t ChunkBytesFor(const ShmGeometry& geometry, size_t wanted) {
  const auto has_room = [&](size_t chunk) { return geometry.RingBytes() / chunk >= kShmMinSlotCount; };
  size_t chunk = geometry.slot_bytes;
  if (wanted == 0) return chunk;
  while (chunk < wanted && geometry.RingBytes() % (2 * chunk) == 0 && has_room(2 * chunk)) chunk *= 2;
  while (chunk > std::max(wanted, kShmPageBytes) && chunk % (2 * kCacheLineBytes) == 0) chunk /= 2;
  return chunk;
}

Transport MakeTransport(const std::shared_ptr<ShmWorld>& world) {
  return {.control = std::make_unique<ShmControlPlane>(world),
          .communicator = std::make_unique<ShmCommunicator>(world),
          .flights = world->flights()};
}

// Executes one alltoall through shared memory.
//
// A sender has one piece for each receiver. Every chunk carries a slice of each piece, in receiver order, and longer
// pieces have longer slices. So all receivers always have work, even if the pieces are unequal. A rank's piece for
// itself bypasses its ring.
//
// Thread-compatible.
class ShmAlltoall {
 public:
  // Reserves the alltoall's chunks in `stream`.
  ShmAlltoall(const AlltoallCall& call, const Members& members, DataStream& stream, ChunkSync& sync,
              StreamWriter& writer);

  // REQUIRES: this rank is a member.
  absl::Status Run();

  // Returns the position at which the next collective starts.
  uint64_t end() const { return chunks_.end; }

 private:
  // The part of a piece in one chunk.
  struct Slice {
    size_t begin;
    size_t bytes;
  };

  size_t LongestRow() const;
  size_t PieceBytes(int sender, int receiver) const { return call_.bytes[sender * members_.size() + receiver]; }
  // Returns how many bytes of a piece go through the ring.
  size_t StreamedBytes(int sender, int receiver) const { return sender == receiver ? 0 : PieceBytes(sender, receiver); }
  Slice SliceOf(int sender, int receiver, uint64_t k) const;
  // Returns the offset of the slice for `receiver` in chunk k.
  size_t OffsetInChunk(int sender, int receiver, uint64_t k) const;

  void CopyOwnPiece();
  absl::Status SendChunk(uint64_t k);
  absl::Status ReceiveChunk(uint64_t k);

  const AlltoallCall& call_;
  const Members members_;
  const ChunkSequence chunks_;
  ChunkSync& sync_;
  StreamWriter& writer_;
  RunningCollective running_;
};

ShmAlltoall::ShmAlltoall(const AlltoallCall& call, const Members& members, DataStream& stream, ChunkSync& sync,
                         StreamWriter& writer)
    : call_(call),
      members_(members),
      chunks_(ReserveRoom(stream, LongestRow(), members.size())),
      sync_(sync),
      writer_(writer),
      running_(sync.Running(call.info, 0)) {
  if (!members_.IncludeSelf()) return;
  for (int sender = 0; sender < members_.size(); ++sender) running_.bytes_total += PieceBytes(sender, members_.self());
}

absl::Status ShmAlltoall::Run() {
  CopyOwnPiece();
  if (chunks_.count == 0) return absl::OkStatus();
  for (uint64_t step = 0; step < chunks_.count + 1; ++step) {
    if (step < chunks_.count) RONDA_RETURN_IF_ERROR(SendChunk(step));
    if (step >= 1) RONDA_RETURN_IF_ERROR(ReceiveChunk(step - 1));
  }
  writer_.Stop();
  return absl::OkStatus();
}

size_t ShmAlltoall::LongestRow() const {
  size_t longest = 0;
  for (int sender = 0; sender < members_.size(); ++sender) {
    size_t row = 0;
    for (int receiver = 0; receiver < members_.size(); ++receiver) row += StreamedBytes(sender, receiver);
    longest = std::max(longest, row);
  }
  return longest;
}

ShmAlltoall::Slice ShmAlltoall::SliceOf(int sender, int receiver, uint64_t k) const {
  const size_t piece = StreamedBytes(sender, receiver);
  const size_t begin = piece * k / chunks_.count;
  return {.begin = begin, .bytes = piece * (k + 1) / chunks_.count - begin};
}

size_t ShmAlltoall::OffsetInChunk(int sender, int receiver, uint64_t k) const {
  size_t offset = 0;
  for (int earlier = 0; earlier < receiver; ++earlier) offset += SliceOf(sender, earlier, k).bytes;
  return offset;
}

void ShmAlltoall::CopyOwnPiece() {
  const int self = members_.self();
  const size_t bytes = PieceBytes(self, self);
  if (bytes == 0) return;
  size_t sent_before = 0;
  size_t received_before = 0;
  for (int earlier = 0; earlier < self; ++earlier) {
    sent_before += PieceBytes(self, earlier);
    received_before += PieceBytes(earlier, self);
  }
  std::memcpy(static_cast<char*>(call_.output) + received_before, static_cast<const char*>(call_.input) + sent_before,
              bytes);
  running_.bytes_done += bytes;
}

absl::Status ShmAlltoall::SendChunk(uint64_t k) {
  const int self = members_.self();
  const size_t bytes = OffsetInChunk(self, members_.size(), k);
  if (bytes == 0) return absl::OkStatus();
  writer_.Start(chunks_.Begin(k), bytes);
  RONDA_RETURN_IF_ERROR(sync_.WaitForRoom(chunks_, k, running_));
  const char* piece = static_cast<const char*>(call_.input);
  uint64_t position = chunks_.Begin(k);
  for (int receiver = 0; receiver < members_.size(); ++receiver) {
    const Slice slice = SliceOf(self, receiver, k);
    if (slice.bytes > 0) writer_.Copy(piece + slice.begin, slice.bytes, position);
    position += slice.bytes;
    piece += PieceBytes(self, receiver);
  }
  sync_.Publish(ShmStage::kPacked, chunks_.End(k));
  return absl::OkStatus();
}

absl::Status ShmAlltoall::ReceiveChunk(uint64_t k) {
  const int self = members_.self();
  char* piece = static_cast<char*>(call_.output);
  for (int sender = 0; sender < members_.size(); ++sender) {
    const Slice slice = SliceOf(sender, self, k);
    if (slice.bytes > 0) {
      RONDA_RETURN_IF_ERROR(sync_.WaitFor(members_[sender], ShmStage::kPacked, chunks_.End(k), running_));
      const uint64_t position = chunks_.Begin(k) + OffsetInChunk(sender, self, k);
      std::memcpy(piece + slice.begin, sync_.Data(members_[sender], position), slice.bytes);
      running_.bytes_done += slice.bytes;
    }
    piece += PieceBytes(sender, self);
  }
  sync_.Publish(ShmStage::kDone, chunks_.End(k));
  return absl::OkStatus();
}

}  // namespace

absl::Status ShmCommunicator::FinishAt(uint64_t end) {
  sync_.Publish(ShmStage::kDone, end);
  return absl::OkStatus();
}

absl::Status ShmCommunicator::Reduce(const ReduceCall& call) {
  if (IsPlain(call) && call.info.group == nullptr) {
    const size_t bytes = call.segments.front().count * SizeOf(call.dtype);
    if (small_.IsSmall(bytes)) {
      RONDA_RETURN_IF_ERROR(sync_.world().failure());
      return small_.RunPlain(call, bytes);
    }
  }
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(call.info, rank(), size());
  const ReduceArithmetic reduction(call, &reduction_memory_);
  if (members.size() == size() && small_.IsSmall(reduction.wire_bytes())) return small_.Run(reduction);
  ShmReduce reduce(reduction, members, stream_, sync_, writer_);
  return members.IncludeSelf() ? reduce.Run() : FinishAt(reduce.end());
}

absl::Status ShmCommunicator::Broadcast(const BroadcastCall& call) {
  RONDA_RETURN_IF_ERROR(sync_.world().failure());
  const Members members(call.info, rank(), size());
  RunningCollective running = sync_.Running(call.info, call.bytes);
  const ChunkSequence chunks = stream_.Reserve(call.bytes);
  if (!members.IncludeSelf()) return FinishAt(chunks.end);
  for (uint64_t k = 0; k < chunks.count; ++k) {
    if (members.self() == call.root) {
      RONDA_RETURN_IF_ERROR(SendChunk(chunks, k, call.data, call.bytes, running));
    } else {
      RONDA_RETURN_IF_ERROR(ReceiveChunk(chunks, k, members[call.root], call.data, call.bytes, running));
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
  const ChunkSequence chunks = stream_.Reserve(*std::max_element(bytes.begin(), bytes.end()));
  if (!members.IncludeSelf()) return FinishAt(chunks.end);
  const int self = members.self();
  const bool receives = call.receiver.value_or(self) == self;
  RunningCollective running = sync_.Running(call.info, std::accumulate(bytes.begin(), bytes.end(), size_t{0}));
  if (receives) CopyOwnPiece(call, self);
  for (uint64_t step = 0; step < chunks.count + 1; ++step) {
    if (step < chunks.count && call.receiver != self)
      RONDA_RETURN_IF_ERROR(SendChunk(chunks, step, call.input, bytes[self], running));
    if (step == 0) continue;
    if (receives) RONDA_RETURN_IF_ERROR(ReceiveChunkFromOthers(chunks, step - 1, call, members, running));
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
  const ChunkSequence chunks = stream_.ReserveLine();
  RunningCollective running = sync_.Running(info, /*bytes_total=*/0);
  if (members.size() == size()) {
    std::optional<LateCall> late_call;
    if (info.ballot != nullptr) running.late_call = &late_call.emplace(info.ballot->when_late);
    RONDA_RETURN_IF_ERROR(flat_.Run(nullptr, 0, chunks, info.ballot, running));
  } else if (members.IncludeSelf()) {
    sync_.Publish(ShmStage::kPacked, chunks.end);
    RONDA_RETURN_IF_ERROR(sync_.WaitForMembers(members, ShmStage::kPacked, chunks.end, running));
  }
  return FinishAt(chunks.end);
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

absl::Status ShmCommunicator::ReceiveChunk(const ChunkSequence& chunks, uint64_t k, RankId from, void* data,
                                           size_t bytes, RunningCollective& running) {
  const Piece piece = PieceOf(chunks, k, bytes);
  if (piece.bytes == 0) return absl::OkStatus();
  RONDA_RETURN_IF_ERROR(sync_.WaitFor(from, ShmStage::kPacked, chunks.End(k), running));
  std::memcpy(At(data, piece.begin), sync_.Data(from, chunks.Begin(k)), piece.bytes);
  running.bytes_done += piece.bytes;
  return absl::OkStatus();
}

absl::Status ShmCommunicator::ReceiveChunkFromOthers(const ChunkSequence& chunks, uint64_t k, const AllgatherCall& call,
                                                     const Members& members, RunningCollective& running) {
  char* to = static_cast<char*>(call.output);
  for (int member = 0; member < members.size(); ++member) {
    const size_t bytes = call.bytes_per_rank[member];
    if (member != members.self()) RONDA_RETURN_IF_ERROR(ReceiveChunk(chunks, k, members[member], to, bytes, running));
    to += bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<Transport> ConnectShmTransport(ShmWorld::Options options) {
  RONDA_ASSIGN_OR_RETURN(const std::shared_ptr<ShmWorld> world, ShmWorld::Connect(std::move(options)));
  return MakeTransport(world);
}

absl::StatusOr<std::vector<Transport>> ConnectShmTransportsInProcess(ShmWorld::Options options) {
  RONDA_ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<ShmWorld>> worlds,
                         ShmWorld::ConnectInProcess(std::move(options)));
  std::vector<Transport> transports;
  transports.reserve(worlds.size());
  for (const std::shared_ptr<ShmWorld>& world : worlds) transports.push_back(MakeTransport(world));
  return transports;
}

}  // namespace ronda
