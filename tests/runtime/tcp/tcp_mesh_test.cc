// SPDX-License-Identifier: Apache-2.0

#include "runtime/tcp/tcp_mesh.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/unique_fd.h"
#include "runtime/net/sockets.h"
#include "runtime/tcp/tcp_listener.h"
#include "tests/testing/message_transports.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::MeshOptions;
using Messages = std::vector<std::unique_ptr<PointToPoint>>;
using Listeners = std::vector<std::unique_ptr<TcpListener>>;

Listeners Listen(int size) {
  Listeners listeners;
  for (int i = 0; i < size; ++i) listeners.push_back(testing::ListenOnLoopback());
  return listeners;
}

// Connects to `listener` like a program that is not a rank of the job.
UniqueFd Visit(const TcpListener& listener) {
  const absl::StatusOr<SocketAddress> address = ToSocketAddress(listener.endpoint());
  EXPECT_TRUE(address.ok());
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), address->get(), address->bytes), 0);
  return socket;
}

void Say(const UniqueFd& socket, const std::string& text) {
  EXPECT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Each rank sends its number to all other ranks, and expects theirs.
void ExchangeRanks(PointToPoint& messages) {
  const auto size = static_cast<size_t>(messages.size());
  const RankId own = messages.rank();
  std::vector<RankId> rooms(size, -1), expected(size);
  std::iota(expected.begin(), expected.end(), 0);
  rooms[static_cast<size_t>(own)] = own;
  std::vector<PointToPoint::Request> requests;
  for (RankId peer = 0; peer < messages.size(); ++peer) {
    if (peer == own) continue;
    requests.push_back(*messages.Send(&own, sizeof(own), peer));
    requests.push_back(*messages.Receive(&rooms[static_cast<size_t>(peer)], sizeof(RankId), peer));
  }
  absl::StatusOr<bool> is_done = false;
  while (is_done.ok() && !*is_done) is_done = messages.Test(absl::MakeSpan(requests));
  EXPECT_TRUE(is_done.ok()) << is_done.status();
  EXPECT_EQ(rooms, expected);
}

// Connects all ranks, each on its own thread. On each level, the ranks exchange their numbers.
void ConnectAndExchange(const Listeners& listeners,
                        const std::function<std::vector<TcpLevel>(RankId rank)>& levels_of) {
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < static_cast<RankId>(listeners.size()); ++rank) {
    threads.emplace_back([&, rank] {
      const absl::StatusOr<Messages> messages =
          ConnectTcp(*listeners[static_cast<size_t>(rank)], MeshOptions(listeners, rank), levels_of(rank));
      ASSERT_TRUE(messages.ok()) << messages.status();
      for (const std::unique_ptr<PointToPoint>& level : *messages) ExchangeRanks(*level);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpMeshTest, EveryRankReachesEveryOther) {
  ConnectAndExchange(Listen(6), [](RankId) { return std::vector<TcpLevel>{{.ranks = {0, 1, 2, 3, 4, 5}}}; });
}

TEST(TcpMeshTest, LevelsAreApart) {
  ConnectAndExchange(Listen(5), [](RankId rank) {
    std::vector<TcpLevel> levels = {{.number = 0, .ranks = {0, 1, 2, 3, 4}}};
    if (rank < 4) {
      levels.push_back({.number = static_cast<uint32_t>(1 + rank % 2),
                        .ranks = rank % 2 == 0 ? std::vector<RankId>{0, 2} : std::vector<RankId>{1, 3}});
    }
    return levels;
  });
}

// A level may list its ranks in any order. If a level has one rank per host, the hosts are in the order of their lowest
// ranks, so the level's ranks need not be in ascending order.
TEST(TcpMeshTest, RanksOfALevelHaveAnyOrder) {
  ConnectAndExchange(Listen(6), [](RankId rank) {
    std::vector<TcpLevel> levels = {{.number = 0, .ranks = {0, 1, 2, 3, 4, 5}}};
    if (rank > 2) levels.push_back({.number = 1, .ranks = {5, 3, 4}});
    return levels;
  });
}

// The ranks form a chain. Each rank connects only with its neighbours, and the last rank does not listen.
TEST(TcpMeshTest, RanksConnectWithTheirPartnersOnly) {
  const Listeners listeners = Listen(3);
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      TcpLevel level = {.ranks = {0, 1, 2}};
      level.partners = rank == 1 ? std::vector<RankId>{0, 2} : std::vector<RankId>{1};
      const TcpPartners partners = ConnectTcpPartners(rank == 2 ? nullptr : listeners[static_cast<size_t>(rank)].get(),
                                                      MeshOptions(listeners, rank), level);
      EXPECT_EQ(partners.absence, absl::OkStatus());
      for (RankId peer = 0; peer < 3; ++peer) {
        EXPECT_EQ(partners.messages->DescriptorOf(peer) >= 0, std::abs(peer - rank) == 1) << rank << ", " << peer;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpMeshTest, PartnersThatComeAreConnectedIfAnotherOneIsMissing) {
  const Listeners listeners = Listen(3);
  const auto connect = [&](RankId rank, std::vector<RankId> others) {
    TcpMeshOptions options = MeshOptions(listeners, rank);
    options.timeout = absl::Seconds(1);
    options.purpose = "control messages";
    return ConnectTcpPartners(listeners[static_cast<size_t>(rank)].get(), options,
                              {.ranks = {0, 1, 2}, .partners = std::move(others)});
  };
  TcpPartners child;
  std::thread connecting([&] { child = connect(1, {0}); });
  const TcpPartners root = connect(0, {1, 2});
  connecting.join();
  EXPECT_EQ(child.absence, absl::OkStatus());
  EXPECT_EQ(root.absent, std::vector<RankId>{2});
  EXPECT_EQ(root.absence.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(root.absence.message()),
              AllOf(HasSubstr("has no connections for control messages from rank 2, which should have called"),
                    HasSubstr("within 1s")));
  ASSERT_TRUE(child.messages->Send("x", 1, 0).ok());
  char byte = 0;
  PointToPoint::Request received = *root.messages->Receive(&byte, 1, 1);
  while (!*root.messages->Test({&received, 1})) root.messages->Rest(absl::Minutes(1));
  EXPECT_EQ(byte, 'x');
}

TEST(TcpMeshTest, CallThatIsNotAnsweredIsMadeAgain) {
  const Listeners listeners = Listen(2);
  std::thread caller([&] {
    TcpMeshOptions options = MeshOptions(listeners, 1);
    options.call_timeout = absl::Milliseconds(20);
    const absl::StatusOr<Messages> messages = ConnectTcp(*listeners[1], options, {{.ranks = {0, 1}}});
    ASSERT_TRUE(messages.ok()) << messages.status();
    ExchangeRanks(*messages->front());
  });
  // A foreign program accepts the connection first, and sends nothing.
  int answered = -1;
  while (answered < 0) answered = accept(listeners[0]->fd(), nullptr, nullptr);
  const UniqueFd silent(answered);
  const absl::StatusOr<Messages> messages = ConnectTcp(*listeners[0], MeshOptions(listeners, 0), {{.ranks = {0, 1}}});
  ASSERT_TRUE(messages.ok()) << messages.status();
  ExchangeRanks(*messages->front());
  caller.join();
}

TEST(TcpMeshTest, RankAloneOnALevelDoesNotWait) {
  ConnectAndExchange(Listen(1), [](RankId) { return std::vector<TcpLevel>{{.ranks = {0}}}; });
}

TEST(TcpMeshTest, UnauthenticatedCallersDoNotStopTheStart) {
  const Listeners listeners = Listen(2);
  std::vector<UniqueFd> callers;
  // There are more silent callers than the listener can hold. After them, three more callers connect: the first one
  // sends data, the second one sends data and disconnects, and the third one stops in the middle of its message.
  for (int i = 0; i < 100; ++i) callers.push_back(Visit(*listeners[0]));
  callers.push_back(Visit(*listeners[0]));
  Say(callers.back(), "GET / HTTP/1.1\r\nHost: example.org\r\n" + std::string(1000, 'x'));
  Say(Visit(*listeners[0]), std::string(kTcpHelloBytes, '\0'));
  callers.push_back(Visit(*listeners[0]));
  Say(callers.back(), "hel");
  ConnectAndExchange(listeners, [](RankId) { return std::vector<TcpLevel>{{.ranks = {0, 1}}}; });
}

TEST(TcpMeshTest, SilentCallersAreDroppedAfterTheTimeout) {
  const Listeners listeners = Listen(2);
  const UniqueFd caller = Visit(*listeners[0]);
  std::atomic<bool> has_ended = false;
  std::thread rank0([&] {
    TcpMeshOptions options = MeshOptions(listeners, 0);
    options.caller_timeout = absl::Milliseconds(1);
    options.job_failure = [&] { return has_ended ? absl::AbortedError("the test is over") : absl::OkStatus(); };
    EXPECT_EQ(ConnectTcp(*listeners[0], options, {{.ranks = {0, 1}}}).status().code(), absl::StatusCode::kAborted);
  });
  std::string challenge(kTcpChallengeBytes, '\0');
  EXPECT_EQ(recv(caller.get(), challenge.data(), challenge.size(), MSG_WAITALL),
            static_cast<ssize_t>(challenge.size()));
  EXPECT_EQ(recv(caller.get(), challenge.data(), 1, 0), 0);
  has_ended = true;
  rank0.join();
}

TEST(TcpMeshTest, RankWithAnotherSecretIsNotConnected) {
  const Listeners listeners = Listen(2);
  absl::Status ends[2];
  std::vector<std::thread> threads;
  for (RankId rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      TcpMeshOptions options = MeshOptions(listeners, rank);
      options.timeout = absl::Seconds(1);
      if (rank == 1) options.job.secret = "open barley";
      ends[rank] = ConnectTcp(*listeners[static_cast<size_t>(rank)], options, {{.ranks = {0, 1}}}).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ends[0].code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(ends[0].message()), AllOf(HasSubstr("rank 0 (host h0"), HasSubstr("from rank 1, which")));
  EXPECT_THAT(std::string(ends[1].message()),
              AllOf(HasSubstr("rank 1 (host h1"), HasSubstr("to rank 0 (host h0"), HasSubstr("has closed")));
}

TEST(TcpMeshTest, RankThatListensNowhereIsNamedWithTheReason) {
  Listeners listeners = Listen(2);
  TcpMeshOptions options = MeshOptions(listeners, 1);
  options.timeout = absl::Milliseconds(300);
  listeners[0].reset();
  const absl::Status status = ConnectTcp(*listeners[1], options, {{.ranks = {0, 1}}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("to rank 0 (host h0"), HasSubstr("Connection refused"),
                                                   HasSubstr("within 300ms"), HasSubstr("RONDA_NETWORK_INTERFACE")));
}

// The machine has no descriptor left for rank 0's connection. That may pass, so rank 0 waits until its timeout.
TEST(TcpMeshTest, ConnectionThatCannotBeAcceptedIsNamedWithTheReason) {
  const Listeners listeners = Listen(2);
  const UniqueFd caller = Visit(*listeners[0]);
  TcpMeshOptions options = MeshOptions(listeners, 0);
  options.timeout = absl::Milliseconds(300);
  for (const int error : {ENFILE, ENOBUFS, ENOMEM}) {
    EXPECT_EXIT(
        {
          testing::RefuseCall(SYS_accept4, error);
          std::cerr << ConnectTcp(*listeners[0], options, {{.ranks = {0, 1}}}).status();
          _exit(7);
        },
        ::testing::ExitedWithCode(7),
        absl::StrCat("DEADLINE_EXCEEDED.*from rank 1.*cannot accept a connection: ", strerror(error)));
  }
}

TEST(TcpMeshTest, CallIsMadeAgainUntilTheOtherListens) {
  Listeners listeners = Listen(2);
  const TcpMeshOptions options = MeshOptions(listeners, 1);
  const Endpoint endpoint = listeners[0]->endpoint();
  listeners[0].reset();
  std::thread rank1([&] {
    const absl::StatusOr<Messages> messages = ConnectTcp(*listeners[1], options, {{.ranks = {0, 1}}});
    EXPECT_TRUE(messages.ok()) << messages.status();
  });
  absl::StatusOr<std::unique_ptr<TcpListener>> again = TcpListener::Start(endpoint);
  while (!again.ok()) again = TcpListener::Start(endpoint);
  TcpMeshOptions options0 = options;
  options0.rank = 0;
  EXPECT_TRUE(ConnectTcp(**again, options0, {{.ranks = {0, 1}}}).ok());
  rank1.join();
}

TEST(TcpMeshTest, FailureOfTheJobEndsTheWait) {
  const Listeners listeners = Listen(2);
  TcpMeshOptions options = MeshOptions(listeners, 0);
  int asked = 0;
  options.job_failure = [&] { return ++asked > 2 ? absl::UnavailableError("rank 1 is gone") : absl::OkStatus(); };
  EXPECT_EQ(ConnectTcp(*listeners[0], options, {{.ranks = {0, 1}}}).status(), absl::UnavailableError("rank 1 is gone"));
}

TEST(TcpListenerTest, AddressThatIsNotThisHostsIsRefusedWithTheReason) {
  const absl::Status status = TcpListener::Start({.host = "elsewhere", .address = "192.0.2.7"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot listen on elsewhere:0"));
}

}  // namespace
}  // namespace ronda
