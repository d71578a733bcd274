// SPDX-License-Identifier: Apache-2.0

#include "runtime/net/connection_limiter.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/net/sockets.h"
#include "tests/runtime/net/clients.h"

namespace ronda {
namespace {

using ::ronda::testing::ConnectTo;
using ::testing::ElementsAre;
using Until = ConnectionLimiter::Until;

constexpr absl::Duration kNever = absl::InfiniteDuration();
constexpr absl::Duration kAtOnce = -absl::InfiniteDuration();

class ConnectionLimiterTest : public ::testing::Test {
 protected:
  void Start(ConnectionLimiter::Options options) {
    UniqueFd listener = *ListenAt(*ResolveEndpoint("127.0.0.1", 0));
    endpoint_ = *ResolveEndpoint("127.0.0.1", *BoundPort(listener.get()));
    options.hand_over = [this](UniqueFd connection) {
      handed_over_.push_back(std::move(connection));
      came_.release();
    };
    limiter_ = *ConnectionLimiter::Create(std::move(listener), std::move(options));
    limiter_->Start();
  }

  // Connects a client, and sends `words` from it.
  UniqueFd Client(const std::string& words) {
    UniqueFd client = ConnectTo(endpoint_);
    Send(client, words);
    return client;
  }
  static void Send(const UniqueFd& client, const std::string& words) {
    EXPECT_EQ(send(client.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
  }
  static std::string AddressOf(const UniqueFd& client) {
    SocketAddress address;
    EXPECT_EQ(getsockname(client.get(), address.get(), &address.bytes), 0);
    return NumericText(address);
  }

  void AwaitUnauthenticated(int64_t count) const {
    while (limiter_->unauthenticated() != count) usleep(1000);
  }

  // Returns the data that the clients of the next `count` connections have sent, in the order in which the connections
  // are handed over.
  std::vector<std::string> HandedOver(int count) {
    std::vector<std::string> words;
    for (int i = 0; i < count; ++i) {
      came_.acquire();
      char text[16] = {};
      EXPECT_GT(recv(handed_over_[seen_++].get(), text, sizeof(text) - 1, 0), 0);
      words.emplace_back(text);
    }
    return words;
  }

  // Waits until the other end has closed the connection.
  static void AwaitEnd(const UniqueFd& client) {
    char byte = 0;
    EXPECT_LE(read(client.get(), &byte, 1), 0);
  }

  std::unique_ptr<ConnectionLimiter> limiter_;

 private:
  Endpoint endpoint_;
  std::vector<UniqueFd> handed_over_ = [] {
    std::vector<UniqueFd> room;
    room.reserve(1000);
    return room;
  }();
  size_t seen_ = 0;
  std::counting_semaphore<> came_{0};
};

TEST_F(ConnectionLimiterTest, AConnectionIsHandedOverWhenItsClientHasSpoken) {
  Start({});
  const UniqueFd silent = Client("");
  const UniqueFd first = Client("first");
  EXPECT_THAT(HandedOver(1), ElementsAre("first"));
  Send(silent, "second");
  EXPECT_THAT(HandedOver(1), ElementsAre("second"));
  EXPECT_EQ(limiter_->unauthenticated(), 0);
}

TEST_F(ConnectionLimiterTest, ASilentConnectionIsReplacedAtTheLimit) {
  Start({.limit = 2, .silence = kAtOnce});
  const UniqueFd oldest = Client("");
  AwaitUnauthenticated(1);
  const UniqueFd younger = Client("");
  AwaitUnauthenticated(2);
  const UniqueFd honest = Client("honest");
  EXPECT_THAT(HandedOver(1), ElementsAre("honest"));
  AwaitEnd(oldest);
  Send(younger, "younger");
  EXPECT_THAT(HandedOver(1), ElementsAre("younger"));
}

TEST_F(ConnectionLimiterTest, NoConnectionIsReplacedBeforeItsTime) {
  Start({.limit = 1, .silence = kNever});
  const UniqueFd slow = Client("");
  AwaitUnauthenticated(1);
  const UniqueFd other = Client("other");
  Send(slow, "slow");
  EXPECT_THAT(HandedOver(2), ElementsAre("slow", "other"));
}

TEST_F(ConnectionLimiterTest, AConnectionCountsUntilItsClientHasAuthenticated) {
  Start({.limit = 1, .until = Until::kAuthenticated, .grace = kNever});
  const UniqueFd first = Client("first");
  EXPECT_THAT(HandedOver(1), ElementsAre("first"));
  const UniqueFd second = Client("second");
  EXPECT_EQ(limiter_->unauthenticated(), 1);
  limiter_->Authenticated(AddressOf(first));
  EXPECT_THAT(HandedOver(1), ElementsAre("second"));
  EXPECT_EQ(limiter_->unauthenticated(), 1);
  Send(first, "still there");
}

TEST_F(ConnectionLimiterTest, AClientThatDoesNotAuthenticateIsReplaced) {
  Start({.limit = 1, .until = Until::kAuthenticated, .grace = kAtOnce});
  const UniqueFd other = Client("other");
  EXPECT_THAT(HandedOver(1), ElementsAre("other"));
  const UniqueFd honest = Client("honest");
  EXPECT_THAT(HandedOver(1), ElementsAre("honest"));
  AwaitEnd(other);
  EXPECT_EQ(limiter_->unauthenticated(), 2);
}

TEST_F(ConnectionLimiterTest, AClientThatHasLeftCountsNoMore) {
  Start({.limit = 1, .until = Until::kAuthenticated, .grace = kNever});
  {
    const UniqueFd first = Client("first");
    EXPECT_THAT(HandedOver(1), ElementsAre("first"));
  }
  const UniqueFd second = Client("second");
  EXPECT_THAT(HandedOver(1), ElementsAre("second"));
}

TEST_F(ConnectionLimiterTest, AClientThatAuthenticatesAndLeavesAtOnceIsNotCounted) {
  Start({.until = Until::kAuthenticated, .grace = kNever});
  for (int i = 0; i < 100; ++i) {
    const UniqueFd client = Client("first");
    EXPECT_THAT(HandedOver(1), ElementsAre("first"));
    limiter_->Authenticated(AddressOf(client));
  }
  AwaitUnauthenticated(0);
}

TEST_F(ConnectionLimiterTest, FiveHundredSilentClientsKeepNobodyWaiting) {
  Start({.silence = kAtOnce});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 500; ++i) silent.push_back(Client(""));
  const UniqueFd honest = Client("honest");
  EXPECT_THAT(HandedOver(1), ElementsAre("honest"));
}

TEST_F(ConnectionLimiterTest, StopEndsWhatHasNotBeenHandedOver) {
  Start({});
  const UniqueFd silent = Client("");
  AwaitUnauthenticated(1);
  limiter_->Stop();
  AwaitEnd(silent);
  limiter_->Authenticated("127.0.0.1:1");
}

}  // namespace
}  // namespace ronda
