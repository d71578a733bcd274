// Messages of any length through a ring of kShmRingBytes in shared memory, from one writer to one reader.
//
// A frame is four bytes of length and the message's payload. A frame longer than the ring streams through it in pieces.
//
// Memory ordering: the writer stores bytes, then `written` (release, and sequentially consistent as
// Doorbell::RingUnlessPolled asks); the reader loads `written` (acquire), then the bytes. `read` works in the same way
// for the room that the reader returns. A writer that finds too little room stores `writer_is_blocked`, then loads
// `read` once more; the reader stores `read`, then loads `writer_is_blocked`. These are sequentially consistent: either
// the writer sees the new room, or the reader sees that it must ring for it.
#ifndef RONDA_RUNTIME_SHM_FRAME_RING_H_
#define RONDA_RUNTIME_SHM_FRAME_RING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/shm/layout.h"

namespace ronda {

// A longer length is taken for damage.
inline constexpr size_t kMaxFrameBytes = size_t{1} << 30;

// The writing end. Keeps the bytes that do not fit yet. Thread-compatible.
class FrameWriter {
 public:
  explicit FrameWriter(ShmRingHeader* ring) : ring_(ring) {}

  // Errors: INVALID_ARGUMENT if `payload` is longer than kMaxFrameBytes.
  absl::Status Queue(absl::string_view payload);

  // Moves as many bytes into the ring as fit, and returns their number. If some are left, the reader's next Read
  // reports that the writer waits. Errors: INTERNAL if the ring's words are damaged.
  absl::StatusOr<size_t> Flush();

  // Whether everything has been moved into the ring.
  bool IsFlushed() const { return sent_ == pending_.size(); }

  // Whether the reader has taken all that was moved into the ring.
  bool IsTaken() const { return ring_->read.load(std::memory_order_seq_cst) == written_; }

 private:
  absl::StatusOr<size_t> Room() const;

  ShmRingHeader* const ring_;
  uint64_t written_ = 0;
  std::string pending_;  // frames; the first sent_ bytes are in the ring
  size_t sent_ = 0;
};

// The reading end. Thread-compatible.
class FrameReader {
 public:
  explicit FrameReader(ShmRingHeader* ring) : ring_(ring) {}

  struct Result {
    std::vector<std::string> messages;
    bool writer_waits = false;  // for room that this read has made: the caller rings its bell
  };

  // Empties the ring and returns the complete messages. Errors: INTERNAL if the ring's words or a length are damaged.
  absl::StatusOr<Result> Read();

  // Whether bytes have come since the last Read.
  bool HasNews() const { return ring_->written.load(std::memory_order_seq_cst) != read_; }

 private:
  absl::Status TakeMessages(std::vector<std::string>& messages);

  ShmRingHeader* const ring_;
  uint64_t read_ = 0;
  std::string partial_;  // the beginning of a message
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_SHM_FRAME_RING_H_
