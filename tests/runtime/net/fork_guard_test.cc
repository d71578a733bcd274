// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/fork_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/unique_fd.h"

namespace ronda {
namespace {

using ::testing::ElementsAre;

// A listening socket, and a connection to it. `family` is the address family of the sockets. The address is 127.0.0.1,
// even for IPv6 sockets.
struct Sockets {
  explicit Sockets(int family) : listener(socket(family, SOCK_STREAM, 0)), client(socket(family, SOCK_STREAM, 0)) {
    sockaddr_storage address = {};
    const socklen_t size = Loopback(family, &address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener.get(), generic, size), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), generic, &length), 0);
    EXPECT_EQ(connect(client.get(), generic, length), 0);
    accepted = UniqueFd(accept(listener.get(), nullptr, nullptr));
    port = ntohs(reinterpret_cast<sockaddr_in*>(generic)->sin_port);  // the same field in both families
  }

  static socklen_t Loopback(int family, sockaddr_storage* address) {
    address->ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(address)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      return sizeof(sockaddr_in);
    }
    EXPECT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &reinterpret_cast<sockaddr_in6*>(address)->sin6_addr), 1);
    return sizeof(sockaddr_in6);
  }

  Endpoint endpoint() const { return {.address = "127.0.0.1", .port = port}; }

  UniqueFd listener;
  UniqueFd client;
  UniqueFd accepted;
  int port = 0;
};

// Returns, for each of `descriptors`, whether it is open in a child process.
std::vector<bool> OpenInChild(const std::vector<int>& descriptors) {
  const pid_t child = fork();
  if (child == 0) {
    int open = 0;
    for (std::size_t i = 0; i < descriptors.size(); ++i) open |= (fcntl(descriptors[i], F_GETFD) >= 0 ? 1 : 0) << i;
    _exit(open);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  std::vector<bool> result;
  for (std::size_t i = 0; i < descriptors.size(); ++i) result.push_back((WEXITSTATUS(status) >> i & 1) != 0);
  return result;
}

std::vector<bool> OpenInChild(const Sockets& sockets) {
  return OpenInChild({sockets.listener.get(), sockets.client.get(), sockets.accepted.get()});
}

TEST(ForkGuardTest, AChildHasNoSocketAtTheEndpoint) {
  const Sockets guarded(AF_INET), other(AF_INET);
  {
    const ForkGuard guard(guarded.endpoint());
    EXPECT_THAT(OpenInChild(guarded), ElementsAre(false, false, false));
    EXPECT_THAT(OpenInChild(other), ElementsAre(true, true, true));
    EXPECT_GE(fcntl(guarded.client.get(), F_GETFD), 0) << "the parent keeps its own";
  }
  EXPECT_THAT(OpenInChild(guarded), ElementsAre(true, true, true)) << "without a guard";
}

TEST(ForkGuardTest, AnAddressOfIPv4InASocketOfIPv6IsTheSame) {
  const Sockets sockets(AF_INET6);
  const ForkGuard guard(sockets.endpoint());
  EXPECT_THAT(OpenInChild(sockets), ElementsAre(false, false, false));
}

TEST(ForkGuardTest, AnEndpointWithTwoGuardsIsGuardedUntilBothHaveGone) {
  const Sockets sockets(AF_INET);
  const ForkGuard guard(sockets.endpoint());
  { const ForkGuard another(sockets.endpoint()); }
  EXPECT_THAT(OpenInChild(sockets), ElementsAre(false, false, false));
}

// A guard closes sockets in a child process, but not in a grandchild: the child has no guard, because it may have
// connections of its own at the endpoint.
TEST(ForkGuardTest, AGrandchildKeepsItsParentsSockets) {
  const Sockets sockets(AF_INET);
  const ForkGuard guard(sockets.endpoint());
  const pid_t child = fork();
  if (child == 0) {
    const Sockets again(AF_INET);
    const bool all = OpenInChild(again) == std::vector<bool>{true, true, true};
    _exit(all ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ronda
