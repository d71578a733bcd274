#include "tests/testing/tcp_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "runtime/base/group.h"

namespace ronda::testing {

std::unique_ptr<TcpListener> ListenOnLoopback() {
  auto listener = TcpListener::Start({.host = "localhost", .address = "127.0.0.1", .loopback = true});
  EXPECT_TRUE(listener.ok()) << listener.status();
  return listener.ok() ? *std::move(listener) : nullptr;
}

TcpMeshOptions MeshOptions(const std::vector<std::unique_ptr<TcpListener>>& listeners, RankId rank) {
  TcpMeshOptions options = {.job = {.job_id = "job", .secret = "open sesame"}, .rank = rank};
  for (const std::unique_ptr<TcpListener>& listener : listeners) {
    const auto number = static_cast<RankId>(options.peers.size());
    options.peers.push_back({.rank = number, .host = "h" + std::to_string(number), .pid = getpid()});
    options.endpoints.push_back(listener->endpoint());
  }
  options.job_failure = [] { return absl::OkStatus(); };
  return options;
}

std::vector<std::unique_ptr<PointToPoint>> ConnectTcpMessages(int size) {
  std::vector<std::unique_ptr<TcpListener>> listeners;
  for (RankId rank = 0; rank < size; ++rank) {
    listeners.push_back(ListenOnLoopback());
    if (listeners.back() == nullptr) return {};
  }
  std::vector<std::unique_ptr<PointToPoint>> ends(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto messages = ConnectTcp(*listeners[static_cast<size_t>(rank)], MeshOptions(listeners, rank),
                                 {{.number = 0, .ranks = Group::All(size).ranks()}});
      EXPECT_TRUE(messages.ok()) << messages.status();
      if (messages.ok()) ends[static_cast<size_t>(rank)] = std::move(messages->front());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::unique_ptr<PointToPoint>& end : ends) {
    if (end == nullptr) return {};
  }
  return ends;
}

}  // namespace ronda::testing
