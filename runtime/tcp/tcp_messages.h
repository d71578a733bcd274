// SPDX-License-Identifier: Apache-2.0

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
#include "runtime/point_to_point/point_to_point.h"

namespace ronda {

// The messages of one direction of a connection. In the byte stream, each message is its length (8 bytes, in host byte
// order, which all ranks share), followed by its content. The queue knows where in memory the next bytes of the stream
// are, so that the kernel copies them directly from or to the messages, without another buffer.
//
//   queue.Add(data, bytes);
//   const size_t count = queue.Fill(vectors);  // sendmsg or recvmsg then moves some of the bytes
//   RONDA_RETURN_IF_ERROR(queue.Advance(moved));
//
// Sender and receiver use the queue in the same way. The sender writes the lengths of its messages to the stream. The
// receiver reads each length from the stream, and checks that it is the expected one.
//
// The queue reuses its memory for later messages. Thread-compatible.
class TransferQueue {
 public:
  using Number = uint64_t;

  // `data` belongs to the queue until the message is complete. Returns the number of the message.
  Number Add(void* data, size_t bytes);

  bool empty() const { return first_ == entries_.size(); }
  bool IsComplete(Number number) const { return number < completed_; }

  // Points `vectors` to the memory of the next bytes of the stream, up to the end of the added messages or the last
  // vector. Returns the number of vectors in use. They are valid until the next Add().
  size_t Fill(absl::Span<iovec> vectors);

  // Records that the first `bytes` bytes of the vectors from Fill() have been moved. Errors: INTERNAL if a message does
  // not have the expected length; the stream is then unusable.
  absl::Status Advance(size_t bytes);

 private:
  struct Entry {
    uint64_t length = 0;  // as sent or received
    char* data = nullptr;
    size_t bytes = 0;
    size_t moved = 0;  // including the length
  };

  std::vector<Entry> entries_;
  size_t first_ = 0;  // the first incomplete message
  Number completed_ = 0;
};

// Messages over TCP, on one connection for each pair of ranks. Each direction of a connection is a sequence of messages
// (TransferQueue).
//
// The sender passes as much of a message as the kernel accepts, directly from the caller's memory. The receiver reads a
// message directly into its caller's memory, but only once the caller has asked for it. Until then, the message stays
// in the kernel's buffers and, when these are full, at the sender. There is no other flow control. Transfers cannot
// deadlock if sender and receiver submit their messages in the same order: a receiver that waits for a message has
// already asked for all earlier ones.
//
// If a connection breaks, its transfers fail. Data that arrived before can still be received, even if this rank can no
// longer send.
//
// Thread-compatible.
class TcpMessages : public PointToPoint {
 public:
  // `sockets` has a connected, non-blocking socket for each rank with which `rank` exchanges messages, and an invalid
  // one for `rank` itself and all other ranks.
  TcpMessages(RankId rank, std::vector<UniqueFd> sockets);

  RankId rank() const override { return rank_; }
  int size() const override { return static_cast<int>(connections_.size()); }

  // Errors of Send, Receive and Test: UNAVAILABLE if the connection is broken; INTERNAL if the other end sends
  // unexpected data.
  absl::StatusOr<Request> Send(const void* data, size_t bytes, RankId to) override;
  absl::StatusOr<Request> Receive(void* data, size_t bytes, RankId from) override;
  absl::StatusOr<bool> Test(absl::Span<Request> requests) override;
  void Progress() override { Move(); }
  absl::StatusOr<bool> Look(absl::Span<Request> requests) override { return AreComplete(requests); }

  void Rest(absl::Duration longest) override;
  bool rest_ends_with_data() const override { return true; }
  int DescriptorOf(RankId peer) const override { return connections_[static_cast<size_t>(peer)].socket.get(); }

 private:
  struct Connection {
    UniqueFd socket;
    TransferQueue sends;
    TransferQueue receives;
    absl::Status send_failure;
    absl::Status receive_failure;
    bool is_listed = false;  // in active_

    bool HasToSend() const { return !sends.empty() && send_failure.ok(); }
    bool HasToReceive() const { return !receives.empty() && receive_failure.ok(); }
    bool IsIdle() const { return !HasToSend() && !HasToReceive(); }
  };
  enum class Direction : uint64_t { kSend, kReceive };

  static Request ToRequest(Direction direction, RankId peer, TransferQueue::Number number);
  // Returns whether the transfer is complete. Errors: the reason why it can never complete.
  absl::StatusOr<bool> IsComplete(const Request& request) const;
  absl::StatusOr<bool> AreComplete(absl::Span<const Request> requests) const;

  void List(RankId peer);
  // Moves data on all connections that have unfinished transfers.
  void Move();
  static void MoveOut(Connection& connection);
  static void MoveIn(Connection& connection);
  // Polls for connections that can move data, for at most `longest`.
  void Poll(absl::Duration longest);

  const RankId rank_;
  std::vector<Connection> connections_;  // by rank
  std::vector<RankId> active_;           // the peers whose connections have transfers in progress
  std::vector<pollfd> polled_;           // in the order of active_
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_TCP_TCP_MESSAGES_H_
