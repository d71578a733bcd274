// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/connection_limiter.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/logging.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/sockets.h"

namespace ronda {
namespace {

// The pause before the next accept() after this process has run out of file descriptors.
constexpr absl::Duration kPause = absl::Milliseconds(100);

// Waits must be limited, because no event arrives if the program has closed the descriptors.
constexpr absl::Duration kLongestWait = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectionLimiter>> ConnectionLimiter::Create(UniqueFd listener, Options options) {
  RONDA_ASSIGN_OR_RETURN(WakePipe wake, WakePipe::Create());
  return absl::WrapUnique(new ConnectionLimiter(std::move(listener), std::move(wake), std::move(options)));
}

void ConnectionLimiter::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ConnectionLimiter::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    is_over_ = true;
  }
  wake_.Wake();
  thread_.join();
  // If the program has closed the limiter's descriptors, their numbers may now belong to other files, which the limiter
  // must not close.
  if (!wake_.IsIntact()) {
    listener_.Release();
    for (Connection& connection : connections_) connection.socket.Release();
  }
  connections_.clear();
  listener_.Reset();
}

void ConnectionLimiter::Authenticated(absl::string_view address) {
  if (options_.until != Until::kAuthenticated) return;
  {
    MutexLock lock(&mu_);
    news_.emplace(address);
  }
  wake_.Wake();
}

void ConnectionLimiter::Run() {
  while (true) {
    const absl::StatusOr<bool> has_callers = Wait();
    if (!has_callers.ok()) {
      return Log(LogLevel::kError, -1,
                 absl::StrCat("no connections are accepted any more: ", has_callers.status().message()));
    }
    {
      MutexLock lock(&mu_);
      if (is_over_) return;
    }
    if (!wake_.IsIntact()) return;
    // Drops authenticated connections before it handles disconnects, because a client may authenticate and disconnect
    // at once.
    DropAuthenticated();
    for (auto connection = connections_.begin(); connection != connections_.end();) {
      connection = IsKept(*connection) ? std::next(connection) : connections_.erase(connection);
    }
    if (*has_callers) Accept();
  }
}

absl::StatusOr<bool> ConnectionLimiter::Wait() {
  const absl::Time room = NextRoom();
  const bool has_room = room <= SteadyNow();
  std::vector<pollfd> events = {{.fd = wake_.reader(), .events = POLLIN},
                                {.fd = has_room ? listener_.get() : -1, .events = POLLIN}};
  for (const Connection& connection : connections_) {
    // After the handover, the server reads the connection's bytes, and the limiter only waits for the peer to
    // disconnect.
    events.push_back({.fd = connection.socket.get(),
                      .events = static_cast<int16_t>(connection.is_handed_over ? POLLRDHUP : POLLIN)});
  }
  const absl::Duration longest = has_room ? kLongestWait : std::min(room - SteadyNow(), kLongestWait);
  RONDA_RETURN_IF_ERROR(PollDescriptors(absl::MakeSpan(events), longest).status());
  size_t next = 2;
  for (Connection& connection : connections_) connection.has_event = events[next++].revents != 0;
  if (events[0].revents != 0) wake_.Clear();
  return events[1].revents != 0;
}

void ConnectionLimiter::DropAuthenticated() {
  std::set<std::string> addresses;
  {
    MutexLock lock(&mu_);
    addresses.swap(news_);
  }
  if (addresses.empty()) return;
  connections_.remove_if([&](const Connection& connection) {
    if (!addresses.contains(connection.address)) return false;
    ++authenticated_;
    return true;
  });
}

bool ConnectionLimiter::IsKept(Connection& connection) {
  if (!connection.has_event) return true;
  if (connection.is_handed_over) return false;
  return HandOver(connection) && options_.until == Until::kAuthenticated;
}

bool ConnectionLimiter::HandOver(Connection& connection) {
  char first = 0;
  const bool has_spoken = recv(connection.socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  if (!has_spoken) return false;
  UniqueFd second;
  if (options_.until == Until::kAuthenticated) {
    second.Reset(fcntl(connection.socket.get(), F_DUPFD_CLOEXEC, 0));
    if (!second.valid()) return false;
  } else {
    ++authenticated_;
  }
  options_.hand_over(std::exchange(connection.socket, std::move(second)));
  connection.is_handed_over = true;
  return true;
}

void ConnectionLimiter::Accept() {
  while (NextRoom() <= SteadyNow()) {
    SocketAddress address;
    UniqueFd socket(accept4(listener_.get(), address.get(), &address.bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      if (IsShortOfSockets(errno)) MakeRoomForDescriptors();
      return;
    }
    ++accepted_;
    if (connections_.size() >= options_.limit) ReplaceOne();
    connections_.push_back({.socket = std::move(socket), .address = NumericText(address), .since = SteadyNow()});
  }
}

void ConnectionLimiter::ReplaceOne() {
  const auto first = std::min_element(connections_.begin(), connections_.end(), [this](auto& one, auto& other) {
    return ReplaceableFrom(one) < ReplaceableFrom(other);
  });
  // close() would not end the connection, because the server holds another descriptor for it.
  shutdown(first->socket.get(), SHUT_RDWR);
  connections_.erase(first);
}

void ConnectionLimiter::MakeRoomForDescriptors() {
  connections_.remove_if([](const Connection& connection) { return !connection.is_handed_over; });
  accept_from_ = SteadyNow() + kPause;
}

absl::Time ConnectionLimiter::ReplaceableFrom(const Connection& connection) const {
  return connection.since + (connection.is_handed_over ? options_.grace : options_.silence);
}

absl::Time ConnectionLimiter::NextRoom() const {
  absl::Time room = absl::InfinitePast();
  if (connections_.size() >= options_.limit) {
    room = absl::InfiniteFuture();
    for (const Connection& connection : connections_) room = std::min(room, ReplaceableFrom(connection));
  }
  return std::max(room, accept_from_);
}

}  // namespace ronda
