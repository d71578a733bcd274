#include "runtime/control/rendezvous/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

TEST(ResolveEndpointTest, LiteralAddresses) {
  const absl::StatusOr<Endpoint> ipv4 = ResolveEndpoint("127.0.0.1", 29500);
  ASSERT_TRUE(ipv4.ok()) << ipv4.status();
  EXPECT_EQ(NumericText(*ipv4), "127.0.0.1:29500");
  EXPECT_TRUE(ipv4->loopback);

  const absl::StatusOr<Endpoint> ipv6 = ResolveEndpoint("::1", 29500);
  ASSERT_TRUE(ipv6.ok()) << ipv6.status();
  EXPECT_EQ(NumericText(*ipv6), "[::1]:29500");
  EXPECT_EQ(ipv6->family, AddressFamily::kIPv6);
  EXPECT_TRUE(ipv6->loopback);

  const absl::StatusOr<Endpoint> remote = ResolveEndpoint("192.0.2.7", 1);
  ASSERT_TRUE(remote.ok()) << remote.status();
  EXPECT_FALSE(remote->loopback);
}

TEST(ResolveEndpointTest, NamesKeepTheirTextForMessages) {
  const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint("localhost", 29500);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(ToString(*endpoint), "localhost:29500");
  EXPECT_TRUE(endpoint->loopback);
}

TEST(ResolveEndpointTest, UnknownHostIsNamed) {
  const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint("no-such-host.invalid", 1);
  EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Text(endpoint.status()), HasSubstr("no-such-host.invalid"));
}

TEST(ResolveEndpointTest, AddressOfAllInterfacesIsRefused) {
  for (const char* host : {"0.0.0.0", "::", "0"}) {
    const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint(host, 1);
    EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(Text(endpoint.status()), HasSubstr("all interfaces"));
  }
}

TEST(CheckSecretTest, OnlyLoopbackGoesWithoutSecret) {
  EXPECT_TRUE(CheckSecret({.host = "localhost", .loopback = true}, "").ok());
  EXPECT_TRUE(CheckSecret({.host = "192.0.2.7", .loopback = false}, "secret").ok());
  const absl::Status status = CheckSecret({.host = "192.0.2.7", .port = 5, .loopback = false}, "");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("RONDA_JOB_SECRET"), HasSubstr("192.0.2.7:5")));
}

TEST(CheckCanListenTest, TakenPortIsExplained) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);

  const absl::StatusOr<Endpoint> endpoint = ResolveEndpoint("127.0.0.1", ntohs(address.sin_port));
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const absl::Status taken = CheckCanListen(*endpoint);
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(taken), AllOf(HasSubstr(ToString(*endpoint)), HasSubstr("RONDA_MASTER_PORT")));
  close(fd);
  EXPECT_TRUE(CheckCanListen(*endpoint).ok());
}

TEST(CheckCanListenTest, AddressOfAnotherHostIsExplained) {
  const absl::Status status =
      CheckCanListen({.host = "192.0.2.7", .family = AddressFamily::kIPv4, .address = "192.0.2.7", .port = 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("192.0.2.7"));
}

}  // namespace
}  // namespace ronda
