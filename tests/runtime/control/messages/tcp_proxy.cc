// SPDX-License-Identifier: Apache-2.0

#include "tests/runtime/control/messages/tcp_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "runtime/base/logging.h"

namespace ronda::testing {
namespace {

// How often a frozen proxy checks whether it has to end.
constexpr int kPollMs = 10;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

TcpProxy::TcpProxy(int target_port) : target_port_(target_port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = Loopback(0);
  socklen_t length = sizeof(address);
  RONDA_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0);
  RONDA_CHECK(listen(listener_, 16) == 0);
  RONDA_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  port_ = ntohs(address.sin_port);
  stop_event_ = eventfd(0, EFD_CLOEXEC);
  RONDA_CHECK(stop_event_ >= 0);
  thread_ = std::thread([this] { Run(); });
}

TcpProxy::~TcpProxy() {
  Cut();
  close(stop_event_);
}

void TcpProxy::Cut() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  RONDA_CHECK(write(stop_event_, &one, sizeof(one)) == sizeof(one));
  thread_.join();
  for (const Connection& connection : connections_) {
    close(connection.client);
    close(connection.target);
  }
  close(listener_);
}

void TcpProxy::Accept() {
  const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  const int target = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = Loopback(target_port_);
  if (client >= 0 && connect(target, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    connections_.push_back({.client = client, .target = target});
    return;
  }
  close(client);
  close(target);
}

bool TcpProxy::Forward(int from, int to) const {
  char bytes[4096];
  const ssize_t count = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count < 0) return true;
  return count > 0 && send(to, bytes, static_cast<size_t>(count), MSG_NOSIGNAL) == count;
}

void TcpProxy::Run() {
  for (;;) {
    std::vector<pollfd> entries = {{.fd = stop_event_, .events = POLLIN, .revents = 0}};
    if (!frozen_) {
      entries.push_back({.fd = listener_, .events = POLLIN, .revents = 0});
      for (const Connection& connection : connections_) {
        entries.push_back({.fd = connection.client, .events = POLLIN, .revents = 0});
        entries.push_back({.fd = connection.target, .events = POLLIN, .revents = 0});
      }
    }
    poll(entries.data(), entries.size(), kPollMs);
    if (entries[0].revents != 0) return;
    if (frozen_) continue;
    if (entries[1].revents != 0) Accept();
    const auto is_broken = [this](const Connection& connection) {
      const bool is_whole =
          Forward(connection.client, connection.target) && Forward(connection.target, connection.client);
      if (!is_whole) {
        close(connection.client);
        close(connection.target);
      }
      return !is_whole;
    };
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(), is_broken), connections_.end());
  }
}

}  // namespace ronda::testing
