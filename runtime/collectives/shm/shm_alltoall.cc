#include "runtime/collectives/shm/shm_alltoall.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

// Room for `bytes` bytes from a rank, so that each chunk can carry a slice of every piece: rounding may make the slices
// of a chunk longer by one byte each.
ChunkSequence TakeRoom(DataStream& stream, size_t bytes, int members) {
  if (bytes <= stream.chunk_bytes()) return stream.Take(bytes);
  const size_t usable = stream.chunk_bytes() - static_cast<size_t>(members);
  return stream.Take((bytes + usable - 1) / usable * stream.chunk_bytes());
}

}  // namespace

ShmAlltoall::ShmAlltoall(const AlltoallCall& call, const Members& members, DataStream& stream, ChunkSync& sync,
                         StreamWriter& writer)
    : call_(call),
      members_(members),
      chunks_(TakeRoom(stream, LongestRow(), members.size())),
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
    if (step >= 1) RONDA_RETURN_IF_ERROR(TakeChunk(step - 1));
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

absl::Status ShmAlltoall::TakeChunk(uint64_t k) {
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

}  // namespace ronda
