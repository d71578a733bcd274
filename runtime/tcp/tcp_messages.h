#ifndef RONDA_RUNTIME_TCP_TCP_MESSAGES_H_
#define RONDA_RUNTIME_TCP_TCP_MESSAGES_H_

#include <poll.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/collectives/messages/point_to_point.h"

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

// Messages over TCP: one connection a pair of ranks, of which each direction is a sequence of messages
// (transfer_queue.h).
//
// A message is sent as far as the kernel takes it, from the caller's memory, and read into the receiver's memory once
// that has asked for it. What nobody has asked for stays in the kernel's buffers, and when these are full at the
// sender: that is all the flow control there is. Nobody waits for ever because of it, as long as both sides name
// messages in the same order: what a rank waits for comes behind only what it has asked for before.
//
// A connection that breaks fails the transfers that need it; what had arrived before may be lost with it.
//
// Thread-compatible.
class TcpMessages : public PointToPoint {
 public:
  // `sockets`: to each rank, connected and non-blocking; none to `rank` itself.
  TcpMessages(RankId rank, std::vector<UniqueFd> sockets);

  RankId rank() const override { return rank_; }
  int size() const override { return static_cast<int>(connections_.size()); }

  // Errors of all three: UNAVAILABLE if the connection has broken; INTERNAL if the other end does not send what is
  // expected.
  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override;
  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override;
  absl::StatusOr<bool> Test(absl::Span<Request> requests) override;

  void Rest(absl::Duration longest) override;

 private:
  struct Connection {
    UniqueFd socket;
    TransferQueue sends;
    TransferQueue receives;
    absl::Status failure;
    bool is_listed = false;  // in active_

    bool IsIdle() const { return (sends.empty() && receives.empty()) || !failure.ok(); }
  };
  enum class Direction : uint64_t { kSend, kReceive };

  static Request ToRequest(Direction direction, RankId peer, TransferQueue::Number number);
  // Whether the transfer is complete. Errors: why it never will be.
  absl::StatusOr<bool> IsComplete(const Request& request) const;
  absl::StatusOr<bool> AreComplete(absl::Span<const Request> requests) const;

  void List(RankId peer);
  // Moves what can be moved on all connections that have something under way.
  void Move();
  static void MoveOut(Connection& connection);
  static void MoveIn(Connection& connection);
  // Asks the kernel which connections can move, for at most `longest`.
  void Poll(absl::Duration longest);

  const RankId rank_;
  std::vector<Connection> connections_;  // by rank
  std::vector<RankId> active_;           // whose connections have something under way
  std::vector<pollfd> polled_;           // as active_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_MESSAGES_H_
