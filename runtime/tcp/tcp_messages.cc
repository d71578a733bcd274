// SPDX-License-Identifier: Apache-2.0

#include "runtime/tcp/tcp_messages.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/logging.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr size_t kLengthBytes = sizeof(uint64_t);
// A queue that never becomes empty erases its complete entries once there are at least this many, and they are more
// than half of all entries.
constexpr size_t kEntriesToReclaim = 256;

// The number of iovecs per system call. A message needs two.
constexpr size_t kVectors = 16;
// With at most this many active connections, trying them all is cheaper than polling.
constexpr size_t kFew = 4;

bool IsTemporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

absl::Status Broken(absl::string_view how) {
  return absl::UnavailableError(absl::StrCat("the connection has broken: ", how));
}

}  // namespace

TransferQueue::Number TransferQueue::Add(void* data, size_t bytes) {
  if (empty() || (first_ >= kEntriesToReclaim && first_ > entries_.size() / 2)) {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
  entries_.push_back({.length = bytes, .data = static_cast<char*>(data), .bytes = bytes});
  return completed_ + (entries_.size() - first_) - 1;
}

size_t TransferQueue::Fill(absl::Span<iovec> vectors) {
  size_t used = 0;
  const auto add = [&](char* base, size_t bytes, size_t skipped) {
    if (skipped < bytes && used < vectors.size()) vectors[used++] = {base + skipped, bytes - skipped};
  };
  for (size_t i = first_; i < entries_.size() && used < vectors.size(); ++i) {
    Entry& entry = entries_[i];
    add(reinterpret_cast<char*>(&entry.length), kLengthBytes, std::min(entry.moved, kLengthBytes));
    add(entry.data, entry.bytes, entry.moved - std::min(entry.moved, kLengthBytes));
  }
  return used;
}

absl::Status TransferQueue::Advance(size_t bytes) {
  while (bytes > 0) {
    RONDA_CHECK(!empty());
    Entry& entry = entries_[first_];
    const size_t step = std::min(bytes, kLengthBytes + entry.bytes - entry.moved);
    entry.moved += step;
    bytes -= step;
    if (entry.moved >= kLengthBytes && entry.length != entry.bytes) {
      return absl::InternalError(
          absl::StrCat("a message of ", entry.length, " bytes has come where one of ", entry.bytes, " is expected"));
    }
    if (entry.moved < kLengthBytes + entry.bytes) break;
    ++first_;
    ++completed_;
  }
  return absl::OkStatus();
}

TcpMessages::TcpMessages(RankId rank, std::vector<UniqueFd> sockets) : rank_(rank), connections_(sockets.size()) {
  for (size_t peer = 0; peer < sockets.size(); ++peer) connections_[peer].socket = std::move(sockets[peer]);
}

PointToPoint::Request TcpMessages::ToRequest(Direction direction, RankId peer, TransferQueue::Number number) {
  return {.words = {static_cast<uint64_t>(peer) * 2 + static_cast<uint64_t>(direction), number}};
}

absl::StatusOr<bool> TcpMessages::IsComplete(const Request& request) const {
  const Connection& connection = connections_[request.words[0] / 2];
  const bool sends = static_cast<Direction>(request.words[0] % 2) == Direction::kSend;
  if ((sends ? connection.sends : connection.receives).IsComplete(request.words[1])) return true;
  RONDA_RETURN_IF_ERROR(sends ? connection.send_failure : connection.receive_failure);
  return false;
}

absl::StatusOr<bool> TcpMessages::AreComplete(absl::Span<const Request> requests) const {
  for (const Request& request : requests) {
    RONDA_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(request));
    if (!is_complete) return false;
  }
  return true;
}

void TcpMessages::List(RankId peer) {
  bool& is_listed = connections_[static_cast<size_t>(peer)].is_listed;
  if (is_listed) return;
  active_.push_back(peer);
  is_listed = true;  // set last: if adding the entry runs out of memory, the next call adds it
}

absl::StatusOr<PointToPoint::Request> TcpMessages::Send(const void* data, size_t bytes, RankId to) {
  RONDA_CHECK(0 <= to && to < size() && to != rank_);
  Connection& connection = connections_[static_cast<size_t>(to)];
  RONDA_RETURN_IF_ERROR(connection.send_failure);
  const bool is_first = connection.sends.empty();
  // The cast is safe, because sending does not modify the data.
  const TransferQueue::Number number = connection.sends.Add(const_cast<void*>(data), bytes);
  if (is_first) MoveOut(connection);
  if (connection.HasToSend()) List(to);
  return ToRequest(Direction::kSend, to, number);
}

absl::StatusOr<PointToPoint::Request> TcpMessages::Receive(void* data, size_t bytes, RankId from) {
  RONDA_CHECK(0 <= from && from < size() && from != rank_);
  Connection& connection = connections_[static_cast<size_t>(from)];
  RONDA_RETURN_IF_ERROR(connection.receive_failure);
  const TransferQueue::Number number = connection.receives.Add(data, bytes);
  List(from);
  return ToRequest(Direction::kReceive, from, number);
}

absl::StatusOr<bool> TcpMessages::Test(absl::Span<Request> requests) {
  RONDA_ASSIGN_OR_RETURN(const bool were_complete, AreComplete(requests));
  if (were_complete) return true;
  Move();
  return AreComplete(requests);
}

void TcpMessages::Move() {
  const bool are_few = active_.size() <= kFew;
  if (!are_few) Poll(absl::ZeroDuration());
  size_t left = 0;
  for (size_t i = 0; i < active_.size(); ++i) {
    Connection& connection = connections_[static_cast<size_t>(active_[i])];
    // On an error, the call that moves the connection's data reports it.
    const auto can = [&](int16_t events) {
      return are_few || (polled_[i].revents & (events | POLLERR | POLLHUP)) != 0;
    };
    if (connection.HasToSend() && can(POLLOUT)) MoveOut(connection);
    if (connection.HasToReceive() && can(POLLIN)) MoveIn(connection);
    connection.is_listed = !connection.IsIdle();
    if (connection.is_listed) active_[left++] = active_[i];
  }
  active_.resize(left);
}

void TcpMessages::MoveOut(Connection& connection) {
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = connection.sends.Fill(absl::MakeSpan(vectors));
  // Without MSG_NOSIGNAL, SIGPIPE would kill this process when a peer is lost.
  const ssize_t moved = sendmsg(connection.socket.get(), &message, MSG_NOSIGNAL);
  if (moved >= 0) {
    connection.send_failure.Update(connection.sends.Advance(static_cast<size_t>(moved)));
  } else if (!IsTemporary(errno)) {
    connection.send_failure.Update(Broken(strerror(errno)));
  }
}

void TcpMessages::MoveIn(Connection& connection) {
  iovec vectors[kVectors];
  msghdr message = {};
  message.msg_iov = vectors;
  message.msg_iovlen = connection.receives.Fill(absl::MakeSpan(vectors));
  const ssize_t moved = recvmsg(connection.socket.get(), &message, 0);
  if (moved > 0) {
    connection.receive_failure.Update(connection.receives.Advance(static_cast<size_t>(moved)));
  } else if (moved == 0) {
    connection.receive_failure.Update(Broken("the other end has closed it"));
  } else if (!IsTemporary(errno)) {
    connection.receive_failure.Update(Broken(strerror(errno)));
  }
  // If this rank can no longer receive from a peer, it cannot send to it either.
  connection.send_failure.Update(connection.receive_failure);
}

void TcpMessages::Poll(absl::Duration longest) {
  polled_.clear();
  for (const RankId peer : active_) {
    const Connection& connection = connections_[static_cast<size_t>(peer)];
    const int events = (connection.HasToSend() ? POLLOUT : 0) | (connection.HasToReceive() ? POLLIN : 0);
    polled_.push_back({.fd = connection.socket.get(), .events = static_cast<int16_t>(events), .revents = 0});
  }
  const absl::Status polled = PollDescriptors(absl::MakeSpan(polled_), longest).status();
  if (polled.ok()) return;
  for (const RankId peer : active_) {
    Connection& connection = connections_[static_cast<size_t>(peer)];
    connection.send_failure.Update(polled);
    connection.receive_failure.Update(polled);
  }
}

void TcpMessages::Rest(absl::Duration longest) { Poll(longest); }

}  // namespace ronda
