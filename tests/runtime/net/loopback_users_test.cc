#include "runtime/net/loopback_users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>

#include "runtime/base/unique_fd.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kStranger = 65534;

sockaddr_in Loopback(uint16_t port) {
  return {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
}

// Listens on a port that the system chooses.
struct Listener {
  Listener() : fd(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd.get(), 8), 0);
    EXPECT_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    endpoint = {.host = "localhost", .address = "127.0.0.1", .port = ntohs(address.sin_port), .loopback = true};
  }

  UniqueFd fd;
  Endpoint endpoint;
};

UniqueFd Call(const Endpoint& endpoint) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(static_cast<uint16_t>(endpoint.port));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

// A child that acts as another user until it is destroyed.
class Stranger {
 public:
  template <typename Act>
  explicit Stranger(const Act& act) {
    int done[2];
    EXPECT_EQ(pipe(done), 0);
    pid_ = fork();
    if (pid_ == 0) {
      if (setresuid(kStranger, kStranger, kStranger) != 0) _exit(1);
      const auto kept = act();
      [[maybe_unused]] const ssize_t count = write(done[1], "x", 1);
      pause();
    }
    char byte = 0;
    EXPECT_EQ(read(done[0], &byte, 1), 1);
    close(done[0]);
    close(done[1]);
  }
  ~Stranger() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  pid_t pid_ = 0;
};

TEST(LoopbackUsersTest, ThisUsersProcessesAreKnown) {
  const Listener listener;
  const UniqueFd caller = Call(listener.endpoint);
  const UniqueFd accepted(accept(listener.fd.get(), nullptr, nullptr));
  EXPECT_EQ(UserOfCaller(accepted.get()), geteuid());
  EXPECT_EQ(UserOfListener(listener.endpoint), geteuid());
  EXPECT_TRUE(CheckCaller(accepted.get()).ok());
  EXPECT_TRUE(CheckListener(listener.endpoint).ok());
}

TEST(LoopbackUsersTest, WhereNobodyListensNobodyIsRefused) {
  Endpoint endpoint;
  {
    const Listener listener;
    endpoint = listener.endpoint;
  }
  EXPECT_EQ(UserOfListener(endpoint), std::nullopt);
  EXPECT_TRUE(CheckListener(endpoint).ok());
}

TEST(LoopbackUsersTest, ACallerOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const Listener listener;
  const Stranger stranger([&] { return Call(listener.endpoint); });
  const UniqueFd accepted(accept(listener.fd.get(), nullptr, nullptr));
  EXPECT_EQ(UserOfCaller(accepted.get()), kStranger);
  EXPECT_THAT(std::string(CheckCaller(accepted.get()).message()), HasSubstr("a process of user 65534"));
}

TEST(LoopbackUsersTest, AListenerOfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Endpoint endpoint;
  {
    const Listener listener;
    endpoint = listener.endpoint;
  }
  const Stranger stranger([&] {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address = Loopback(static_cast<uint16_t>(endpoint.port));
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(fd.get(), 8) != 0)
      _exit(1);
    return fd;
  });
  EXPECT_EQ(UserOfListener(endpoint), kStranger);
  EXPECT_THAT(std::string(CheckListener(endpoint).message()), HasSubstr("is a process of user 65534"));
}

}  // namespace
}  // namespace ronda
