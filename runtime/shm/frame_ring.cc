#include "runtime/shm/frame_ring.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

using FrameLength = uint32_t;

char* DataOf(ShmRingHeader* ring) { return reinterpret_cast<char*>(ring + 1); }

absl::Status Damaged(absl::string_view what, uint64_t value) {
  return absl::InternalError(absl::StrCat("a control ring in shared memory is damaged: ", what, " ", value));
}

}  // namespace

absl::Status FrameWriter::Queue(absl::string_view payload) {
  if (payload.size() > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a control message of ", payload.size(), " bytes is too long"));
  }
  if (IsFlushed()) {
    pending_.clear();
    sent_ = 0;
  }
  const auto length = static_cast<FrameLength>(payload.size());
  pending_.append(reinterpret_cast<const char*>(&length), sizeof(length));
  pending_.append(payload.data(), payload.size());
  return absl::OkStatus();
}

absl::StatusOr<size_t> FrameWriter::Room() const {
  const uint64_t in_ring = written_ - ring_->read.load(std::memory_order_seq_cst);
  if (in_ring > kShmRingBytes) return Damaged("bytes not yet read:", in_ring);
  return kShmRingBytes - in_ring;
}

absl::StatusOr<size_t> FrameWriter::Flush() {
  size_t moved = 0;
  while (!IsFlushed()) {
    RONDA_ASSIGN_OR_RETURN(size_t room, Room());
    if (room == 0) {
      ring_->writer_is_blocked.store(1, std::memory_order_seq_cst);
      RONDA_ASSIGN_OR_RETURN(room, Room());
      if (room == 0) break;
    }
    const size_t at = written_ % kShmRingBytes;
    const size_t n = std::min({room, pending_.size() - sent_, kShmRingBytes - at});
    std::memcpy(DataOf(ring_) + at, pending_.data() + sent_, n);
    sent_ += n;
    written_ += n;
    moved += n;
    ring_->written.store(written_, std::memory_order_seq_cst);
  }
  return moved;
}

absl::StatusOr<FrameReader::Result> FrameReader::Read() {
  Result result;
  for (;;) {
    const uint64_t available = ring_->written.load(std::memory_order_acquire) - read_;
    if (available == 0) break;
    if (available > kShmRingBytes) return Damaged("bytes written:", available);
    const size_t at = read_ % kShmRingBytes;
    const size_t n = std::min<size_t>(available, kShmRingBytes - at);
    partial_.append(DataOf(ring_) + at, n);
    read_ += n;
    ring_->read.store(read_, std::memory_order_seq_cst);
    if (ring_->writer_is_blocked.load(std::memory_order_seq_cst) != 0) {
      ring_->writer_is_blocked.store(0, std::memory_order_seq_cst);
      result.writer_waits = true;
    }
  }
  RONDA_RETURN_IF_ERROR(TakeMessages(result.messages));
  return result;
}

absl::Status FrameReader::TakeMessages(std::vector<std::string>& messages) {
  size_t begin = 0;
  for (;;) {
    FrameLength length;
    if (partial_.size() - begin < sizeof(length)) break;
    std::memcpy(&length, partial_.data() + begin, sizeof(length));
    if (length > kMaxFrameBytes) return Damaged("a message's length is", length);
    if (partial_.size() - begin - sizeof(length) < length) break;
    messages.push_back(partial_.substr(begin + sizeof(length), length));
    begin += sizeof(length) + length;
  }
  partial_.erase(0, begin);
  return absl::OkStatus();
}

}  // namespace ronda
