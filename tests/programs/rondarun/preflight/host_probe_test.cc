// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/preflight/host_probe.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr char kLoopback[] = "127.0.0.1";
constexpr absl::Duration kTimeout = absl::Seconds(20);

// A loopback port that accepts connections and sends nothing.
class SilentServer {
 public:
  SilentServer() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_.get(), 1), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }

  int port() const { return port_; }

 private:
  const UniqueFd fd_;
  int port_ = 0;
};

TEST(EchoTest, ProbeIsAnswered) {
  const auto server = EchoServer::Listen(kLoopback);
  ASSERT_TRUE(server.ok()) << server.status();
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = TryEcho(kLoopback, kLoopback, (*server)->port(), kTimeout);
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(EchoTest, ManyMayAskAtOnce) {
  const auto server = EchoServer::Listen(kLoopback);
  ASSERT_TRUE(server.ok()) << server.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(TryEcho(kLoopback, kLoopback, (*server)->port(), kTimeout).ok()); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(EchoTest, APortWhereNobodyListensIsRefused) {
  int port = 0;
  {
    const auto server = EchoServer::Listen(kLoopback);
    ASSERT_TRUE(server.ok()) << server.status();
    port = (*server)->port();
  }
  const absl::Status status = TryEcho(kLoopback, kLoopback, port, kTimeout);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("refused"));
}

TEST(EchoTest, WaitForASilentHostEnds) {
  const SilentServer server;
  const absl::Status status = TryEcho(kLoopback, kLoopback, server.port(), absl::Milliseconds(50));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST(EchoTest, AddressesOfOtherHostsCannotBeUsed) {
  // No host has the address 192.0.2.1, because its network is reserved for documentation.
  const auto server = EchoServer::Listen("192.0.2.1");
  EXPECT_EQ(server.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(server.status().message(), HasSubstr("cannot listen on 192.0.2.1"));
  EXPECT_THAT(TryEcho("192.0.2.1", kLoopback, 1, kTimeout).message(), HasSubstr("cannot use 192.0.2.1"));
  EXPECT_THAT(TryEcho(kLoopback, "h2", 1, kTimeout).message(), HasSubstr("h2"));
}

}  // namespace
}  // namespace ronda
