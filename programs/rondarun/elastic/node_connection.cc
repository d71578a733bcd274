// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/node_connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/loopback_users.h"
#include "runtime/net/sockets.h"

namespace ronda {
namespace {

// Sets TCP options that let this end notice if the other host has been switched off, even if neither side sends data.
void SetUp(int socket) {
  const auto set = [socket](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

void SetBlocking(int fd, bool blocks) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, blocks ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

absl::Status Unavailable(int error) { return absl::UnavailableError(strerror(error)); }

absl::Status Await(int fd, int16_t events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("it does not answer");
    pollfd request = {.fd = fd, .events = events, .revents = 0};
    RONDA_ASSIGN_OR_RETURN(const int count, PollDescriptors({&request, 1}, left));
    if (count > 0) return absl::OkStatus();
  }
}

absl::StatusOr<UniqueFd> Connect(const Endpoint& endpoint, absl::Time deadline) {
  RONDA_ASSIGN_OR_RETURN(const SocketAddress to, ToSocketAddress(endpoint));
  UniqueFd fd(socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Unavailable(errno);
  if (connect(fd.get(), to.get(), to.bytes) != 0) {
    if (errno != EINPROGRESS) return Unavailable(errno);
    RONDA_RETURN_IF_ERROR(Await(fd.get(), POLLOUT, deadline));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return Unavailable(error);
  }
  SetUp(fd.get());
  return fd;
}

absl::StatusOr<std::string> Receive(int fd, size_t count, absl::Time deadline) {
  std::string bytes(count, '\0');
  size_t done = 0;
  while (done < count) {
    RONDA_RETURN_IF_ERROR(Await(fd, POLLIN, deadline));
    const ssize_t got = recv(fd, bytes.data() + done, count - done, 0);
    if (got == 0) return absl::UnavailableError("it has closed the connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR) return Unavailable(errno);
    if (got > 0) done += static_cast<size_t>(got);
  }
  return bytes;
}

// Sends a handshake message, which is short enough to fit into the buffer of a new connection.
absl::Status Send(int fd, absl::string_view message) {
  const ssize_t sent = send(fd, message.data(), message.size(), MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(message.size())) return absl::OkStatus();
  return sent < 0 ? Unavailable(errno) : absl::UnavailableError("it takes no bytes");
}

absl::Status StatusOf(const NodeWelcome& welcome) {
  switch (welcome.verdict) {
    case NodeWelcome::Verdict::kAccepted:
      return absl::OkStatus();
    case NodeWelcome::Verdict::kNoRoom:
      return absl::ResourceExhaustedError(welcome.text);
    case NodeWelcome::Verdict::kNotProved:
      return absl::PermissionDeniedError(welcome.text);
    case NodeWelcome::Verdict::kUnfit:
      return absl::FailedPreconditionError(absl::StrCat("the leader refuses this node: ", welcome.text));
  }
  return absl::InternalError("unknown verdict");
}

// One direction of a relay between two descriptors.
struct Stream {
  int from;
  int to;
  std::string pending = {};

  // Reads the bytes that are available. Returns false if `from` has ended; *error is then the reason, or 0 for a normal
  // end.
  bool Read(int* error) {
    std::array<char, 65536> buffer;
    const ssize_t count = read(from, buffer.data(), buffer.size());
    *error = count < 0 ? errno : 0;
    if (count > 0) pending.assign(buffer.data(), static_cast<size_t>(count));
    return count > 0 || *error == EAGAIN || *error == EINTR;
  }
  bool Write(int* error) {
    const ssize_t count = write(to, pending.data(), pending.size());
    *error = count < 0 ? errno : 0;
    if (count > 0) pending.erase(0, static_cast<size_t>(count));
    return count > 0 || *error == EAGAIN || *error == EINTR;
  }
  // Returns the event that this direction waits for: bytes to read, or room to write.
  pollfd request() const {
    const bool reads = pending.empty();
    return {.fd = reads ? from : to, .events = static_cast<int16_t>(reads ? POLLIN : POLLOUT), .revents = 0};
  }
  bool Advance(int* error) { return pending.empty() ? Read(error) : Write(error); }
};

int SayEnd(absl::string_view what) {
  fprintf(stderr, "%s\n", std::string(what).c_str());
  return 1;
}

}  // namespace

absl::StatusOr<NodeCall> AcceptNode(int listener) {
  sockaddr_storage from = {};
  socklen_t size = sizeof(from);
  auto* const generic = reinterpret_cast<sockaddr*>(&from);
  UniqueFd fd(accept4(listener, generic, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    return IsShortOfSockets(errno) ? absl::ResourceExhaustedError(strerror(errno)) : Unavailable(errno);
  }
  SetUp(fd.get());
  std::array<char, NI_MAXHOST> address = {};
  getnameinfo(generic, size, address.data(), address.size(), nullptr, 0, NI_NUMERICHOST);
  return NodeCall{.socket = std::move(fd), .address = address.data()};
}

absl::StatusOr<JoinedNode> JoinLeader(const Endpoint& endpoint, const std::string& secret, const NodeHello& hello,
                                      absl::Time deadline) {
  RONDA_ASSIGN_OR_RETURN(UniqueFd socket, Connect(endpoint, deadline));
  if (secret.empty()) RONDA_RETURN_IF_ERROR(CheckListener(endpoint));
  RONDA_ASSIGN_OR_RETURN(NodeCaller caller, NodeCaller::Create(secret));
  RONDA_ASSIGN_OR_RETURN(const std::string challenge, Receive(socket.get(), kNodeChallengeBytes, deadline));
  RONDA_ASSIGN_OR_RETURN(const std::string answer, caller.Answer(challenge, hello));
  RONDA_RETURN_IF_ERROR(Send(socket.get(), answer));
  RONDA_ASSIGN_OR_RETURN(const std::string size, Receive(socket.get(), kNodeLengthBytes, deadline));
  const std::optional<size_t> length = NodeMessageLength(size);
  if (!length) return absl::InvalidArgumentError("what answers there is no rondarun of this version");
  RONDA_ASSIGN_OR_RETURN(const std::string body, Receive(socket.get(), *length, deadline));
  RONDA_ASSIGN_OR_RETURN(const NodeWelcome welcome, caller.Check(body));
  RONDA_RETURN_IF_ERROR(StatusOf(welcome));
  SetBlocking(socket.get(), true);
  return JoinedNode{.socket = std::move(socket), .name = welcome.text};
}

int RunNodeRelay(absl::string_view fd) {
  int socket = -1;
  if (!absl::SimpleAtoi(fd, &socket) || socket < 0) return SayEnd("the node is gone");
  signal(SIGPIPE, SIG_IGN);
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, socket}) SetBlocking(each, false);
  Stream streams[] = {{.from = STDIN_FILENO, .to = socket}, {.from = socket, .to = STDOUT_FILENO}};
  while (true) {
    pollfd requests[] = {streams[0].request(), streams[1].request()};
    const absl::StatusOr<int> ready = PollDescriptors(absl::MakeSpan(requests), absl::InfiniteDuration());
    if (!ready.ok()) return SayEnd(ready.status().message());
    for (int i = 0; i < 2; ++i) {
      int error = 0;
      if (requests[i].revents == 0 || streams[i].Advance(&error)) continue;
      if (requests[i].fd != socket) return 0;
      return SayEnd(error == 0 ? "the node has closed the connection" : strerror(error));
    }
  }
}

}  // namespace ronda
