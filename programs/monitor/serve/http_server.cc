// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/net/sockets.h"

namespace ronda {
namespace {

constexpr size_t kQueue = 64;  // connections that wait to be answered

// A connection with a deadline.
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
    return left > absl::ZeroDuration() && PollDescriptors({&wanted, 1}, left).value_or(0) == 1;
  }

  const int socket_;
  const absl::Duration deadline_;
};

// Drops the bytes of a refused request that have not been read. If a socket is closed while it has unread bytes, the
// client may not receive the reply.
void DropUnread(int socket) {
  std::array<char, 4096> rest;
  for (int i = 0; i < 16 && recv(socket, rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) {
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Endpoint& endpoint, const HttpSite* site,
                                                              const Options& options) {
  absl::StatusOr<UniqueFd> listener = ListenAt(endpoint);
  if (absl::IsAlreadyExists(listener.status())) {
    return absl::AlreadyExistsError(absl::StrCat(listener.status().message(), "; leave --port out to have a free one"));
  }
  RONDA_RETURN_IF_ERROR(listener.status());
  RONDA_ASSIGN_OR_RETURN(const int port, BoundPort(listener->get()));
  std::unique_ptr<HttpServer> server(new HttpServer(port, site, options));
  RONDA_RETURN_IF_ERROR(server->Listen(*std::move(listener)));
  return server;
}

absl::Status HttpServer::Listen(UniqueFd listener) {
  RONDA_ASSIGN_OR_RETURN(
      limiter_, ConnectionLimiter::Create(std::move(listener),
                                          {.hand_over = [this](UniqueFd socket) { Push(std::move(socket)); }}));
  for (int i = 0; i < options_.connections; ++i) threads_.emplace_back([this] { Work(); });
  limiter_->Start();
  return absl::OkStatus();
}

HttpServer::~HttpServer() {
  {
    MutexLock lock(&mu_);
    is_over_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void HttpServer::Push(UniqueFd connection) {
  MutexLock lock(&mu_);
  while (!is_over_ && queue_.size() == kQueue) changed_.Wait(&mu_);
  queue_.push_back(std::move(connection));
  changed_.NotifyAll();
}

UniqueFd HttpServer::Pop() {
  MutexLock lock(&mu_);
  while (!is_over_ && queue_.empty()) changed_.Wait(&mu_);
  if (is_over_) return UniqueFd();
  UniqueFd connection = std::move(queue_.front());
  queue_.pop_front();
  changed_.NotifyAll();
  return connection;
}

void HttpServer::Work() {
  for (UniqueFd connection = Pop(); connection.valid(); connection = Pop()) Answer(std::move(connection));
}

void HttpServer::Answer(UniqueFd connection) const {
  SocketStream stream(connection.get(), MonotonicTime() + options_.timeout);
  site_->Answer(&stream);
  shutdown(connection.get(), SHUT_WR);
  DropUnread(connection.get());
}

}  // namespace ronda
