#ifndef RONDA_RUNTIME_TCP_TRANSFER_QUEUE_H_
#define RONDA_RUNTIME_TCP_TRANSFER_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace ronda {

// The messages of one direction of a connection, as they lie in its stream of bytes: each is its length, 8 bytes in
// the byte order that both ends have, and its content. Says where the next bytes of the stream come from, or go to: the
// messages' own memory, so that nothing is copied on the way to the kernel or from it.
//
//   queue.Add(data, bytes);
//   const size_t count = queue.Fill(vectors);            // then sendmsg or recvmsg, which moves some of them
//   RONDA_RETURN_IF_ERROR(queue.Advance(moved));
//
// The same on both sides: a sender's lengths go to the stream, a receiver's are overwritten by what comes from there,
// and must be what they were.
//
// Keeps its memory for the next messages. Thread-compatible.
class TransferQueue {
 public:
  using Number = uint64_t;

  // `data` is the queue's until the message is complete. Returns the number of the message.
  Number Add(void* data, size_t bytes);

  bool empty() const { return first_ == entries_.size(); }
  bool IsComplete(Number number) const { return number < completed_; }

  // The next bytes of the stream, as far as messages were added and `vectors` reach: how many of these are in use. They
  // are valid until the next Add.
  size_t Fill(absl::Span<iovec> vectors);

  // So many of the bytes that Fill has named were moved.
  // Errors: INTERNAL if a message has another length than was asked for. The stream is of no use then.
  absl::Status Advance(size_t bytes);

 private:
  struct Entry {
    uint64_t length = 0;  // as it is sent, or was received
    char* data = nullptr;
    size_t bytes = 0;
    size_t moved = 0;  // of length and content together
  };

  std::vector<Entry> entries_;
  size_t first_ = 0;  // of those that are not complete
  Number completed_ = 0;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TRANSFER_QUEUE_H_
