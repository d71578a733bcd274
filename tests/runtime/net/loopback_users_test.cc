// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/loopback_users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "runtime/base/unique_fd.h"
#include "runtime/net/sockets.h"
#include "tests/runtime/net/clients.h"

namespace ronda {
namespace {

using ::ronda::testing::AsOtherUser;
using ::ronda::testing::CanBeOtherUser;
using ::ronda::testing::ConnectTo;
using ::ronda::testing::kOtherUser;
using ::testing::HasSubstr;

// The parameter is an address of this host.
class LoopbackUsersTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!ListenAt(*ResolveEndpoint(GetParam(), 0)).ok()) GTEST_SKIP() << "this host has no " << GetParam();
  }

  // Listens on a port that the system chooses.
  static UniqueFd Listen() { return *ListenAt(*ResolveEndpoint(GetParam(), 0)); }

  static Endpoint EndpointOf(const UniqueFd& listener) {
    return *ResolveEndpoint(GetParam(), *BoundPort(listener.get()));
  }

  static UniqueFd Accept(const UniqueFd& listener) {
    pollfd entry = {.fd = listener.get(), .events = POLLIN};
    EXPECT_EQ(poll(&entry, 1, -1), 1);
    return UniqueFd(accept(listener.get(), nullptr, nullptr));
  }
};

INSTANTIATE_TEST_SUITE_P(Families, LoopbackUsersTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return info.index == 0 ? "IPv4" : "IPv6"; });

TEST_P(LoopbackUsersTest, ThisUsersProcessesAreKnown) {
  const UniqueFd listener = Listen();
  const UniqueFd caller = ConnectTo(EndpointOf(listener));
  const UniqueFd accepted = Accept(listener);
  EXPECT_EQ(UserOfCaller(accepted.get()), geteuid());
  EXPECT_EQ(UserOfListener(EndpointOf(listener)), geteuid());
  EXPECT_TRUE(CheckCaller(accepted.get()).ok());
  EXPECT_TRUE(CheckListener(EndpointOf(listener)).ok());
}

TEST_P(LoopbackUsersTest, WhereNobodyListensNobodyIsRefused) {
  const Endpoint endpoint = EndpointOf(Listen());
  EXPECT_EQ(UserOfListener(endpoint), std::nullopt);
  EXPECT_TRUE(CheckListener(endpoint).ok());
}

TEST_P(LoopbackUsersTest, ACallerOfAnotherUserIsRefused) {
  if (!CanBeOtherUser()) GTEST_SKIP();
  const UniqueFd listener = Listen();
  const UniqueFd caller = AsOtherUser([&] { return ConnectTo(EndpointOf(listener)); });
  const UniqueFd accepted = Accept(listener);
  EXPECT_EQ(UserOfCaller(accepted.get()), kOtherUser);
  EXPECT_THAT(std::string(CheckCaller(accepted.get()).message()), HasSubstr("the caller is a process of user 65534"));
}

// The kernel lists a closed connection as if it belonged to root.
TEST_P(LoopbackUsersTest, ACallerThatHasClosedItsConnectionIsRefused) {
  const UniqueFd listener = Listen();
  ConnectTo(EndpointOf(listener)).Reset();
  const UniqueFd accepted = Accept(listener);
  EXPECT_EQ(UserOfCaller(accepted.get()), std::nullopt);
  EXPECT_THAT(std::string(CheckCaller(accepted.get()).message()), HasSubstr("has closed its connection"));
}

TEST_P(LoopbackUsersTest, AListenerOfAnotherUserIsRefused) {
  if (!CanBeOtherUser()) GTEST_SKIP();
  const UniqueFd listener = AsOtherUser([] { return Listen(); });
  EXPECT_EQ(UserOfListener(EndpointOf(listener)), kOtherUser);
  EXPECT_THAT(std::string(CheckListener(EndpointOf(listener)).message()), HasSubstr("is a process of user 65534"));
}

// An IPv6 socket that is bound to no address also accepts connections over IPv4.
TEST(LoopbackUsersOfAllAddressesTest, AListenerAndACallerAreKnownInEitherFamily) {
  UniqueFd listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid() || listen(listener.get(), 1) != 0) GTEST_SKIP() << "this host has no IPv6";
  const Endpoint endpoint = *ResolveEndpoint("127.0.0.1", *BoundPort(listener.get()));
  EXPECT_EQ(UserOfListener(endpoint), geteuid());
  const UniqueFd caller = ConnectTo(endpoint);
  const UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(UserOfCaller(accepted.get()), geteuid());
}

}  // namespace
}  // namespace ronda
