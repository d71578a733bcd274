#include "runtime/monitor/serve/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/status_macros.h"

namespace ronda {
namespace {

constexpr int kQueue = 64;  // connections that wait to be answered

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress AddressOf(const Endpoint& endpoint) {
  SocketAddress address;
  if (endpoint.family == AddressFamily::kIPv6) {
    auto* const in6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    *in6 = {.sin6_family = AF_INET6, .sin6_port = htons(static_cast<uint16_t>(endpoint.port))};
    inet_pton(AF_INET6, endpoint.address.c_str(), &in6->sin6_addr);
    address.size = sizeof(*in6);
  } else {
    auto* const in = reinterpret_cast<sockaddr_in*>(&address.storage);
    *in = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(endpoint.port))};
    inet_pton(AF_INET, endpoint.address.c_str(), &in->sin_addr);
    address.size = sizeof(*in);
  }
  return address;
}

absl::StatusOr<UniqueFd> Listen(const Endpoint& endpoint) {
  SocketAddress address = AddressOf(endpoint);
  UniqueFd listener(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return absl::ErrnoToStatus(errno, "cannot create a socket");
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (bind(listener.get(), address.get(), address.size) != 0 || listen(listener.get(), kQueue) != 0) {
    const std::string text = absl::StrCat("cannot listen on ", NumericText(endpoint));
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(
          absl::StrCat(text, ": another program does; leave --port out to have a free one"));
    }
    return absl::ErrnoToStatus(errno, text);
  }
  return listener;
}

int PortOf(int listener) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  getsockname(listener, address.get(), &address.size);
  // At the same place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

// A connection with a limit on its time.
class SocketStream final : public ByteStream {
 public:
  SocketStream(int socket, absl::Duration deadline) : socket_(socket), deadline_(deadline) {}

  ssize_t Read(char* to, size_t at_most) override {
    return Await(POLLIN) ? recv(socket_, to, at_most, MSG_DONTWAIT) : -1;
  }
  ssize_t Write(const char* from, size_t bytes) override {
    return Await(POLLOUT) ? send(socket_, from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) : -1;
  }

 private:
  bool Await(int16_t event) const {
    const absl::Duration left = deadline_ - MonotonicTime();
    pollfd wanted = {.fd = socket_, .events = event};
    return left > absl::ZeroDuration() && poll(&wanted, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) == 1;
  }

  const int socket_;
  const absl::Duration deadline_;
};

// To close a socket with unread bytes would take back what was written: a refused request may have some.
void DropUnread(int socket) {
  std::array<char, 4096> rest;
  for (int i = 0; i < 16 && recv(socket, rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Endpoint& endpoint, const HttpSite* site,
                                                              const Options& options) {
  RONDA_ASSIGN_OR_RETURN(UniqueFd listener, Listen(endpoint));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC));
  if (!stop.valid()) return absl::ErrnoToStatus(errno, "cannot create an eventfd");
  const int port = PortOf(listener.get());
  return absl::WrapUnique(new HttpServer(std::move(listener), std::move(stop), port, site, options));
}

HttpServer::HttpServer(UniqueFd listener, UniqueFd stop, int port, const HttpSite* site, const Options& options)
    : listener_(std::move(listener)), stop_(std::move(stop)), port_(port), site_(site), patience_(options.patience) {
  for (int i = 0; i < options.connections; ++i) threads_.emplace_back([this] { Work(); });
}

HttpServer::~HttpServer() {
  eventfd_write(stop_.get(), 1);
  for (std::thread& thread : threads_) thread.join();
}

void HttpServer::Work() const {
  while (true) {
    std::array<pollfd, 2> events = {{{.fd = stop_.get(), .events = POLLIN}, {.fd = listener_.get(), .events = POLLIN}}};
    if (poll(events.data(), events.size(), -1) < 0 && errno != EINTR) return;
    if (events[0].revents != 0) return;
    // Another thread may have been faster.
    const UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) continue;
    SocketStream stream(socket.get(), MonotonicTime() + patience_);
    site_->Answer(&stream);
    shutdown(socket.get(), SHUT_WR);
    DropUnread(socket.get());
  }
}

}  // namespace ronda
