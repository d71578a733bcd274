// SPDX-License-Identifier: Apache-2.0

// Clients for tests of servers, such as a connected socket, or a client that runs as another user of this host.
#ifndef RONDA_TESTS_RUNTIME_NET_CLIENTS_H_
#define RONDA_TESTS_RUNTIME_NET_CLIENTS_H_

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <thread>
#include <utility>

#include "runtime/base/unique_fd.h"
#include "runtime/net/sockets.h"

namespace ronda::testing {

// Returns a blocking socket that is connected to `endpoint`, which must be numeric.
inline UniqueFd ConnectTo(const Endpoint& endpoint) {
  const SocketAddress address = *ToSocketAddress(endpoint);
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), address.get(), address.bytes), 0);
  return socket;
}

constexpr uid_t kOtherUser = 65534;

// Returns whether this process can act as another user, which only root can.
inline bool CanBeOtherUser() { return geteuid() == 0; }

// Calls `act` as kOtherUser and returns its result. Sockets and threads that `act` creates also belong to kOtherUser.
// REQUIRES: CanBeOtherUser().
template <typename Act>
auto AsOtherUser(const Act& act) {
  std::optional<decltype(act())> result;
  std::thread([&] {
    // A direct system call changes the user of this thread only. The C library's setresuid() would change the user of
    // all threads.
    EXPECT_EQ(syscall(SYS_setresuid, kOtherUser, kOtherUser, kOtherUser), 0);
    result = act();
  }).join();
  return *std::move(result);
}

}  // namespace ronda::testing

#endif  // RONDA_TESTS_RUNTIME_NET_CLIENTS_H_
