// SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/virtual_sockets.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ronda::simulation {
namespace {

// A buffer has 2^6 to 2^16 bytes.
constexpr size_t kSmallestBuffer = 64;
constexpr uint64_t kBufferSizes = 11;
// The smallest buffer of a connection created by connect(). Linux's send buffer is never smaller (SO_SNDBUF in
// socket(7)).
constexpr size_t kSmallestBufferOfACall = 2048;
// On average, one in this many calls moves only a part of its bytes, and one in this many pieces is split before it
// arrives.
constexpr uint64_t kCallsAPart = 4;
// The longest time until one end of a connection notices a reset. Half of the resets take at most a hundredth of it,
// and thus lose more bytes.
constexpr absl::Duration kResetTime = absl::Milliseconds(1);

int Fail(int error) {
  errno = error;
  return -1;
}

size_t LengthOf(const msghdr& message) {
  size_t bytes = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) bytes += message.msg_iov[i].iov_len;
  return bytes;
}

// Returns the first `bytes` bytes of the message.
std::string Gather(const msghdr& message, size_t bytes) {
  std::string gathered;
  for (size_t i = 0; gathered.size() < bytes; ++i) {
    const iovec& vector = message.msg_iov[i];
    gathered.append(static_cast<const char*>(vector.iov_base), std::min(vector.iov_len, bytes - gathered.size()));
  }
  return gathered;
}

void Scatter(const std::string& bytes, const msghdr& message) {
  size_t done = 0;
  for (size_t i = 0; done < bytes.size(); ++i) {
    const iovec& vector = message.msg_iov[i];
    const size_t step = std::min(vector.iov_len, bytes.size() - done);
    std::memcpy(vector.iov_base, bytes.data() + done, step);
    done += step;
  }
}

}  // namespace

VirtualSockets& VirtualSockets::Get() {
  static VirtualSockets* const sockets = new VirtualSockets;
  return *sockets;
}

std::array<int, 2> VirtualSockets::Connect(Arrival arrival) {
  const VirtualWorld::Shield shield;
  const auto connection = std::make_shared<Connection>();
  connection->arrival = std::move(arrival);
  std::array<int, 2> sockets;
  for (size_t side = 0; side < 2; ++side) {
    connection->sides[side].buffer_bytes = kSmallestBuffer << VirtualWorld::Get().Random(kBufferSizes);
    sockets[side] = next_++;
    ends_[sockets[side]] = {.connection = connection, .side = side};
  }
  return sockets;
}

int VirtualSockets::Open() {
  const VirtualWorld::Shield shield;
  unconnected_[next_] = {.process = VirtualWorld::Get().current_process()};
  return next_++;
}

VirtualSockets::Unconnected* VirtualSockets::ListenerAt(uint16_t port) {
  for (auto& [socket, each] : unconnected_) {
    if (each.port == port && each.listens) return &each;
  }
  return nullptr;
}

int VirtualSockets::Bind(int socket, uint16_t port) {
  if (ListenerAt(port) != nullptr) return Fail(EADDRINUSE);
  unconnected_.at(socket).port = port;
  return 0;
}

int VirtualSockets::Listen(int socket) {
  unconnected_.at(socket).listens = true;
  return 0;
}

int VirtualSockets::Connect(int socket, uint16_t port) {
  const VirtualWorld::Shield shield;
  VirtualWorld::Get().Look();
  Unconnected& caller = unconnected_.at(socket);
  Unconnected* const listener = ListenerAt(port);
  if (listener == nullptr) {
    caller.refused_at = arrival_(caller.process, caller.process);
    return Fail(EINPROGRESS);
  }
  const auto [from, to] = Connect(arrival_);
  const Place place = ends_.extract(from).mapped();
  ends_[socket] = place;
  Side& near = SideOf(place);
  Side& far = OtherOf(place);
  near.process = caller.process;
  far.process = listener->process;
  far.begin = arrival_(near.process, far.process);
  near.begin = std::max(far.begin, arrival_(far.process, near.process));
  for (Side* const side : {&near, &far}) {
    side->buffer_bytes = std::max(side->buffer_bytes, kSmallestBufferOfACall);
    side->last_arrival = side->begin;
  }
  listener->callers.push_back(to);
  unconnected_.erase(socket);
  return Fail(EINPROGRESS);
}

int VirtualSockets::Accept(int socket) {
  const VirtualWorld::Shield shield;
  VirtualWorld& world = VirtualWorld::Get();
  world.Look();
  std::deque<int>& callers = unconnected_.at(socket).callers;
  const auto has_come = [&](int caller) { return EndOf(caller).begin <= world.now(); };
  const auto caller = std::find_if(callers.begin(), callers.end(), has_come);
  if (caller == callers.end()) return Fail(EAGAIN);
  const int accepted = *caller;
  callers.erase(caller);
  return accepted;
}

int VirtualSockets::ErrorOf(int socket) const {
  const absl::Duration now = VirtualWorld::Get().now();
  if (const auto found = unconnected_.find(socket); found != unconnected_.end()) {
    return found->second.refused_at <= now ? ECONNREFUSED : 0;
  }
  return SideOf(ends_.at(socket)).reset_at <= now ? ECONNRESET : 0;
}

size_t VirtualSockets::SomeOf(size_t bytes) {
  VirtualWorld& world = VirtualWorld::Get();
  if (bytes <= 1 || !world.OneIn(kCallsAPart)) return bytes;
  ++parts_;
  return 1 + static_cast<size_t>(world.Random(bytes - 1));
}

absl::Duration VirtualSockets::ArrivalAtOther(const Place& place) {
  Side& other = OtherOf(place);
  other.last_arrival = std::max(other.last_arrival, place.connection->arrival(SideOf(place).process, other.process));
  return other.last_arrival;
}

size_t VirtualSockets::Readable(const Side& side) {
  const absl::Duration until = std::min(VirtualWorld::Get().now(), side.reset_at);
  size_t bytes = 0;
  for (auto piece = side.coming.begin(); piece != side.coming.end() && piece->arrival <= until; ++piece) {
    bytes += piece->bytes.size();
  }
  return bytes;
}

void VirtualSockets::ResetSide(Side* side, absl::Duration from) {
  VirtualWorld& world = VirtualWorld::Get();
  const absl::Duration longest = world.OneIn(2) ? kResetTime : kResetTime / 100;
  side->reset_at = std::min(side->reset_at, from + world.RandomDuration(longest));
  if (!side->coming.empty() && side->coming.back().arrival > side->reset_at) ++resets_;
}

ssize_t VirtualSockets::Send(int socket, const msghdr& message, Extent extent) {
  const VirtualWorld::Shield shield;
  VirtualWorld& world = VirtualWorld::Get();
  world.Look();
  const Place& place = ends_.at(socket);
  Side& self = SideOf(place);
  Side& other = OtherOf(place);
  if (!self.is_open) return Fail(EBADF);
  if (self.reset_at <= world.now()) return Fail(world.OneIn(2) ? EPIPE : ECONNRESET);
  const size_t room = other.buffer_bytes - std::min(other.buffer_bytes, other.coming_bytes);
  if (room == 0) return Fail(EAGAIN);
  const size_t fitting = std::min(room, LengthOf(message));
  const size_t taken = extent == Extent::kWhole ? fitting : SomeOf(fitting);
  std::string bytes = Gather(message, taken);
  while (!bytes.empty()) {
    const size_t step = SomeOf(bytes.size());
    other.coming.push_back({.bytes = bytes.substr(0, step), .arrival = ArrivalAtOther(place)});
    bytes.erase(0, step);
  }
  other.coming_bytes += taken;
  if (!other.is_open && !other.is_silent) ResetSide(&self, other.last_arrival);
  return static_cast<ssize_t>(taken);
}

ssize_t VirtualSockets::Receive(int socket, const msghdr& message) {
  const VirtualWorld::Shield shield;
  VirtualWorld& world = VirtualWorld::Get();
  world.Look();
  Side& self = EndOf(socket);
  if (!self.is_open) return Fail(EBADF);
  const size_t readable = Readable(self);
  if (readable == 0) {
    if (self.reset_at <= world.now()) return Fail(ECONNRESET);
    return self.coming.empty() && self.end_at <= world.now() ? 0 : Fail(EAGAIN);
  }
  const size_t read = SomeOf(std::min(readable, LengthOf(message)));
  std::string bytes;
  while (bytes.size() < read) {
    std::string& piece = self.coming.front().bytes;
    const size_t step = std::min(piece.size(), read - bytes.size());
    bytes.append(piece, 0, step);
    piece.erase(0, step);
    if (piece.empty()) self.coming.pop_front();
  }
  self.coming_bytes -= read;
  Scatter(bytes, message);
  return static_cast<ssize_t>(read);
}

int16_t VirtualSockets::LookAt(const Unconnected& socket, absl::Duration* next) const {
  const absl::Duration now = VirtualWorld::Get().now();
  if (socket.refused_at <= now) return POLLERR | POLLHUP;
  *next = std::min(*next, socket.refused_at);
  for (const int caller : socket.callers) {
    const absl::Duration begin = SideOf(ends_.at(caller)).begin;
    if (begin <= now) return POLLIN;
    *next = std::min(*next, begin);
  }
  return 0;
}

int16_t VirtualSockets::Look(int socket, int16_t events, absl::Duration* next) const {
  if (const auto found = unconnected_.find(socket); found != unconnected_.end()) return LookAt(found->second, next);
  const absl::Duration now = VirtualWorld::Get().now();
  const Place& place = ends_.at(socket);
  const Side& self = SideOf(place);
  const Side& other = OtherOf(place);
  if (!self.is_open) return POLLNVAL;
  const bool is_reset = self.reset_at <= now;
  if (!is_reset && self.begin > now) {
    *next = std::min({*next, self.begin, self.reset_at});
    return 0;
  }
  const bool has_ended = self.coming.empty() && self.end_at <= now;
  int found = is_reset ? POLLERR | POLLHUP | POLLIN | POLLOUT : 0;
  if (Readable(self) > 0 || has_ended) found |= POLLIN;
  if (other.coming_bytes < other.buffer_bytes) found |= POLLOUT;
  for (const absl::Duration time : {self.coming.empty() ? self.end_at : self.coming.front().arrival, self.reset_at}) {
    if (time > now) *next = std::min(*next, time);
  }
  return static_cast<int16_t>(found & (events | POLLERR | POLLHUP));
}

void VirtualSockets::Reset(int socket) {
  const Place& place = ends_.at(socket);
  for (Side& side : place.connection->sides) ResetSide(&side, VirtualWorld::Get().now());
}

bool VirtualSockets::ResetBetween(ProcessId one, ProcessId other) {
  bool was_connected = false;
  for (const auto& [socket, place] : ends_) {
    const bool is_between = SideOf(place).process == one && OtherOf(place).process == other;
    if (!is_between || !SideOf(place).is_open || !OtherOf(place).is_open) continue;
    was_connected = true;
    Reset(socket);
  }
  return was_connected;
}

void VirtualSockets::Close(const Place& place) {
  Side& self = SideOf(place);
  Side& other = OtherOf(place);
  if (!std::exchange(self.is_open, false)) return;
  if (!self.coming.empty()) ResetSide(&other, std::max(VirtualWorld::Get().now(), self.coming.front().arrival));
  other.end_at = ArrivalAtOther(place);
}

int VirtualSockets::Close(int socket) {
  const VirtualWorld::Shield shield;
  if (const auto unconnected = unconnected_.extract(socket); !unconnected.empty()) {
    for (const int caller : unconnected.mapped().callers) Close(ends_.at(caller));
    return 0;
  }
  Close(ends_.at(socket));
  return 0;
}

void VirtualSockets::Drop(ProcessId process, End how) {
  const VirtualWorld::Shield shield;
  std::erase_if(unconnected_, [&](const auto& each) { return each.second.process == process; });
  for (const auto& [socket, place] : ends_) {
    if (SideOf(place).process != process) continue;
    if (how == End::kSilence && SideOf(place).is_open) SideOf(place).is_silent = true;
    if (how == End::kSilence) SideOf(place).is_open = false;
    Close(place);
  }
}

}  // namespace ronda::simulation
