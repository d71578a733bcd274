#include "runtime/launch/preflight/echo.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr char kGreeting[] = "ronda --check";
constexpr absl::Duration kServerPatience = absl::Seconds(2);  // with one that connects and says nothing

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Numeric(const std::string& address, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(absl::StrCat(address, ": ", gai_strerror(error)));
  return Addresses(found);
}

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

// Waits until `fd` is ready for `events`.
absl::Status Await(int fd, short events, absl::Time deadline) {
  pollfd ready = {.fd = fd, .events = events, .revents = 0};
  for (;;) {
    const absl::Duration left = std::min(deadline - absl::Now(), absl::Hours(1));
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("no answer");
    const int count = poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (count > 0) return absl::OkStatus();
    if (count < 0 && errno != EINTR) return SystemError("poll");
  }
}

// Reads sizeof(kGreeting) bytes, or less if the other side ends before.
absl::StatusOr<std::string> ReadGreeting(int fd, absl::Time deadline) {
  std::array<char, sizeof(kGreeting)> buffer;
  std::string text;
  while (text.size() < buffer.size()) {
    RONDA_RETURN_IF_ERROR(Await(fd, POLLIN, deadline));
    const ssize_t count = recv(fd, buffer.data(), buffer.size() - text.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count < 0) return SystemError("connection lost");
    if (count == 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  return text;
}

void Answer(int fd) {
  const absl::StatusOr<std::string> text = ReadGreeting(fd, absl::Now() + kServerPatience);
  // A few bytes fit into the empty buffer of a new connection. A caller that is gone needs no answer.
  if (text.ok() && send(fd, text->data(), text->size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

absl::Status Connect(int fd, const addrinfo& to, absl::Time deadline) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return absl::OkStatus();
  if (errno != EINPROGRESS) return SystemError("cannot connect");
  RONDA_RETURN_IF_ERROR(Await(fd, POLLOUT, deadline));
  socklen_t size = sizeof(errno);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &size) == 0 && errno == 0) return absl::OkStatus();
  return SystemError("cannot connect");
}

}  // namespace

absl::StatusOr<std::unique_ptr<EchoServer>> EchoServer::Listen(const std::string& address) {
  RONDA_ASSIGN_OR_RETURN(const Addresses at, Numeric(address, 0));
  UniqueFd fd(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (!fd.valid() || bind(fd.get(), at->ai_addr, at->ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address, ": ", strerror(errno)));
  }
  std::array<char, NI_MAXSERV> service = {};
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, service.data(), service.size(), NI_NUMERICSERV);
  return std::unique_ptr<EchoServer>(new EchoServer(std::move(fd), std::atoi(service.data())));
}

EchoServer::EchoServer(UniqueFd listening, int port)
    : listening_(std::move(listening)), port_(port), thread_([this] { Serve(); }) {}

EchoServer::~EchoServer() {
  shutdown(listening_.get(), SHUT_RDWR);
  thread_.join();
}

void EchoServer::Serve() const {
  for (;;) {
    const UniqueFd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.valid()) {
      Answer(connection.get());
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;  // the destructor's shutdown()
    }
  }
}

absl::Status TryEcho(const std::string& from, const std::string& to, int port, absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  RONDA_ASSIGN_OR_RETURN(const Addresses source, Numeric(from, 0));
  RONDA_ASSIGN_OR_RETURN(const Addresses target, Numeric(to, port));
  const UniqueFd fd(socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SystemError("no socket");
  if (bind(fd.get(), source->ai_addr, source->ai_addrlen) != 0) return SystemError(absl::StrCat("cannot use ", from));
  RONDA_RETURN_IF_ERROR(Connect(fd.get(), *target, deadline));
  if (send(fd.get(), kGreeting, sizeof(kGreeting), MSG_NOSIGNAL) < 0) return SystemError("connection lost");
  RONDA_ASSIGN_OR_RETURN(const std::string answer, ReadGreeting(fd.get(), deadline));
  if (answer != std::string(kGreeting, sizeof(kGreeting))) return absl::UnavailableError("somebody else answers");
  return absl::OkStatus();
}

}  // namespace ronda
