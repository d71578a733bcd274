// SPDX-License-Identifier: Apache-2.0

// Tests how ranks connect and how their job ends. The ranks are threads of one process, over sockets on loopback.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <semaphore>
#include <set>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/clock.h"
#include "runtime/control/messages/message_control_plane.h"
#include "runtime/net/endpoint.h"
#include "runtime/tcp/tcp_messages.h"
#include "tests/runtime/control/messages/tcp_proxy.h"
#include "tests/runtime/control/messages/tcp_ranks.h"
#include "tests/runtime/net/clients.h"
#include "tests/testing/refuse_call.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

TEST(TcpControlPlaneTest, TreeOfSixtySixRanksCarriesReportsAndBroadcasts) {
  const auto planes = Connect({.size = 66});
  ASSERT_EQ(planes.size(), 66U);
  for (RankId rank = 0; rank < 66; ++rank)
    ASSERT_EQ(planes[rank]->SendToCoordinator(absl::StrCat(rank)), absl::OkStatus());
  std::set<RankId> heard;
  while (heard.size() < 66) {
    for (const ControlMessage& message : ReceiveSome(*planes[0]).to_coordinator) {
      EXPECT_EQ(message.payload, absl::StrCat(message.from));
      EXPECT_TRUE(heard.insert(message.from).second);
    }
  }
  ASSERT_EQ(planes[0]->Broadcast("all"), absl::OkStatus());
  for (const auto& plane : planes) EXPECT_THAT(ReceiveSome(*plane).broadcasts, ::testing::ElementsAre("all"));
}

TEST(TcpControlPlaneTest, MessagesOfManyMebibytesTravelBothWays) {
  const auto planes = Connect({.size = 2});
  std::string text(size_t{16} << 20, '\0');
  for (size_t i = 0; i < text.size(); i += 4096) text[i] = static_cast<char>(i >> 12);
  ASSERT_EQ(planes[1]->SendToCoordinator(text), absl::OkStatus());
  const ControlPlane::Inbox inbox = ReceiveSome(*planes[0]);
  ASSERT_EQ(inbox.to_coordinator.size(), 1U);
  EXPECT_EQ(inbox.to_coordinator[0].from, 1);
  EXPECT_TRUE(inbox.to_coordinator[0].payload == text);
  ASSERT_EQ(planes[0]->Broadcast(text), absl::OkStatus());
  EXPECT_TRUE(ReceiveSome(*planes[1]).broadcasts.at(0) == text);
}

TEST(TcpControlPlaneTest, RefusedCallFailsTheStartAndIsNamed) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd other(ends[1]);
  EXPECT_EXIT(
      {
        RefuseCall(SYS_ppoll, EPERM);
        std::vector<UniqueFd> sockets(2);
        sockets[1] = UniqueFd(ends[0]);
        const auto plane = ConnectMessageControlPlane({.rank = 0,
                                                       .peers = {{.rank = 0}, {.rank = 1}},
                                                       .messages = std::make_unique<TcpMessages>(0, std::move(sockets)),
                                                       .start_timeout = absl::InfiniteDuration()});
        std::cerr << plane.status();
        _exit(7);
      },
      ::testing::ExitedWithCode(7), "the system refuses ppoll");
  close(ends[0]);
}

// Stops the heartbeats, because the thread that sends them also moves messages.
void SendNoHeartbeats(TcpRank& rank) {
  rank.control.heartbeat = absl::Hours(1);
  rank.control.heartbeat_timeout = absl::InfiniteDuration();
}

TEST(TcpControlPlaneTest, BroadcastsNeedNoHelpFromTheRanksInBetween) {
  const auto planes = Connect({.size = 4, .fan_out = 1, .adapt = SendNoHeartbeats});
  ASSERT_EQ(planes[0]->Broadcast("x"), absl::OkStatus());
  EXPECT_EQ(ReceiveSome(*planes[3]).broadcasts.at(0), "x");
}

// Sets short timeouts. In a job, one setting is both the timeout of the connections and the timeout of the control
// plane.
void StartWithinMoments(TcpRank& rank) {
  rank.mesh.timeout = absl::Milliseconds(1500);
  rank.control.start_timeout = rank.mesh.timeout;
}

// Rank 3 is missing. Only its parent, rank 1, notices this, and tells the other ranks.
TEST(TcpControlPlaneTest, MissingRankIsNamedToEverybody) {
  auto ranks = RanksOf({.size = 4, .fan_out = 2, .adapt = StartWithinMoments});
  const std::string address = NumericText(ranks[1].listener->endpoint());
  ranks.erase(ranks.begin() + 3);
  for (const auto& plane : ConnectAll(std::move(ranks))) {
    EXPECT_EQ(plane.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(Text(plane.status()),
                HasSubstr(absl::StrCat(PeerText(1),
                                       " has no connections for control messages from rank 3, which "
                                       "should have called ",
                                       address, ", within 1.5s")));
  }
}

TEST(TcpControlPlaneTest, ParentThatCannotBeReachedIsNamedWithItsAddress) {
  auto ranks = RanksOf({.size = 2, .adapt = [](TcpRank& rank) { rank.mesh.timeout = absl::Milliseconds(300); }});
  const std::string address = NumericText(ranks[0].listener->endpoint());
  ranks[0].listener.reset();
  const absl::Status status = ConnectRank(std::move(ranks[1])).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(status), HasSubstr(absl::StrCat(PeerText(1), " has no connections for control messages to ",
                                                   PeerText(0), " at ", address)));
}

TEST(TcpControlPlaneTest, ChildWithAnotherSecretIsNamedToTheRanksThatHaveConnected) {
  const TriedPlanes planes = ConnectAll(RanksOf({.size = 3, .adapt = [](TcpRank& rank) {
                                                   StartWithinMoments(rank);
                                                   if (rank.mesh.rank == 2) rank.mesh.job.secret = "guess";
                                                 }}));
  EXPECT_THAT(Text(planes[0].status()), HasSubstr("from rank 2, which should have called"));
  EXPECT_EQ(planes[1].status(), planes[0].status());
  EXPECT_THAT(Text(planes[2].status()), HasSubstr(absl::StrCat("to ", PeerText(0))));
}

TEST(TcpControlPlaneTest, CallerOfAnotherUserIsDroppedIfThereIsNoSecret) {
  if (!CanBeOtherUser()) GTEST_SKIP();
  auto ranks = RanksOf({.size = 2, .secret = ""});
  // Another user of the machine connects to rank 0 before rank 1 connects.
  const UniqueFd caller = AsOtherUser([&] { return ConnectTo(ranks[0].listener->endpoint()); });
  const TriedPlanes planes = ConnectAll(std::move(ranks));
  EXPECT_EQ(planes[0].status(), absl::OkStatus());
  char byte = 0;
  EXPECT_LE(recv(caller.get(), &byte, 1, 0), 0) << "it has got no challenge, and its connection has been ended";
}

TEST(TcpControlPlaneTest, WireThatBreaksIsTheFailureOfBothEndsAtOnce) {
  auto ranks = RanksOf({.size = 3, .fan_out = 1, .adapt = SendNoHeartbeats});
  TcpProxy wire(ranks[2].mesh.endpoints[1].port);
  ranks[2].mesh.endpoints[1].port = wire.port();
  const auto planes = ConnectAll(std::move(ranks));
  ASSERT_TRUE(planes[2].ok()) << planes[2].status();
  wire.Cut();
  const std::string gone = " is gone: its connection closed";
  EXPECT_EQ(Text(AwaitFailure(**planes[2])), PeerText(1) + gone);
  EXPECT_EQ(Text(AwaitFailure(**planes[1])), PeerText(2) + gone);
  EXPECT_EQ(Text(AwaitFailure(**planes[0])), PeerText(2) + gone);
}

TEST(TcpControlPlaneTest, WireThatFallsSilentIsNoticedByBothEnds) {
  auto ranks = RanksOf({.size = 3, .fan_out = 1, .adapt = [](TcpRank& rank) {
                          rank.control.heartbeat = absl::Milliseconds(50);
                          rank.control.heartbeat_timeout = absl::Seconds(1);
                        }});
  TcpProxy wire(ranks[2].mesh.endpoints[1].port);
  ranks[2].mesh.endpoints[1].port = wire.port();
  const auto planes = ConnectAll(std::move(ranks));
  ASSERT_TRUE(planes[2].ok()) << planes[2].status();
  wire.Freeze();
  const std::string silent = " gave no sign of life for 1s (host down or network cut?)";
  EXPECT_EQ(Text(AwaitFailure(**planes[2])), PeerText(1) + silent);
  EXPECT_EQ(Text(AwaitFailure(**planes[1])), PeerText(2) + silent);
  EXPECT_EQ(Text(AwaitFailure(**planes[0])), PeerText(2) + silent);
}

// The thread that polls also drives the engine. It may be in a long collective while another thread is in Wait().
TEST(TcpControlPlaneTest, MessagesPassThroughARankWhosePollingThreadDoesNotLook) {
  const auto planes = Connect({.size = 3, .fan_out = 1, .adapt = SendNoHeartbeats});
  const absl::Time deadline = SteadyNow() + absl::Minutes(1);
  std::thread waiting([&] { planes[1]->Wait(deadline); });
  ASSERT_TRUE(planes[1]->StartPolling());
  ASSERT_EQ(planes[2]->SendToCoordinator("x"), absl::OkStatus());
  EXPECT_EQ(ReceiveSome(*planes[0]).to_coordinator.size(), 1U);
  EXPECT_LT(SteadyNow(), deadline);
  planes[1]->StopPolling();
  planes[1]->Wake();
  waiting.join();
}

// While no message arrives, neither a thread in Wait() nor the control plane's own thread polls.
TEST(TcpControlPlaneTest, IdleRanksSleep) {
  const auto planes = Connect({.size = 2, .adapt = SendNoHeartbeats});
  const auto switches = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
  };
  std::thread other([&] { planes[1]->Wait(SteadyNow() + absl::Milliseconds(600)); });
  planes[0]->Wait(SteadyNow() + absl::Milliseconds(100));  // until the ranks are idle
  const auto before = switches();
  planes[0]->Wait(SteadyNow() + absl::Milliseconds(400));
  EXPECT_LT(switches() - before, 50);  // looking every millisecond would make 800
  other.join();
}

// Returns the descriptors of this process's pipes.
std::set<int> Pipes() {
  std::set<int> pipes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int fd = -1;
    struct stat info = {};
    const bool is_pipe =
        absl::SimpleAtoi(entry.path().filename().string(), &fd) && fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
    if (is_pipe) pipes.insert(fd);
  }
  return pipes;
}

// Closes descriptors like closefrom(), which programs call to become daemons. When the pipes are closed, threads that
// wait on them can no longer be woken.
TEST(TcpControlPlaneTest, RankWhoseProgramClosesItsPipeFailsAndNamesTheReason) {
  const std::set<int> before = Pipes();
  const auto planes = Connect({.size = 2, .adapt = SendNoHeartbeats});
  ASSERT_EQ(planes.size(), 2U);
  std::thread waiting([&] { planes[1]->Wait(absl::InfiniteFuture()); });
  for (const int fd : Pipes()) {
    if (!before.contains(fd)) close(fd);
  }
  planes[1]->Wake();
  waiting.join();
  for (const auto& plane : planes) {
    EXPECT_THAT(Text(AwaitFailure(*plane)), HasSubstr(": the program has closed descriptors that Ronda has opened"));
  }
}

TEST(TcpControlPlaneTest, HeartbeatsKeepAnIdleJobAlive) {
  const auto planes = Connect({.size = 3, .fan_out = 1, .adapt = [](TcpRank& rank) {
                                 rank.control.heartbeat = absl::Milliseconds(20);
                                 rank.control.heartbeat_timeout = absl::Seconds(1);
                               }});
  planes[0]->Wait(SteadyNow() + absl::Milliseconds(1500));
  for (const auto& plane : planes) EXPECT_EQ(plane->failure(), absl::OkStatus());
}

TEST(TcpControlPlaneTest, FailureIsCalledOutOnceOnEveryRank) {
  std::counting_semaphore<8> called(0);
  std::atomic<int> calls{0};
  {
    const auto planes = Connect({.size = 3, .adapt = [&](TcpRank& rank) {
                                   rank.control.on_failure = [&](const absl::Status& failure) {
                                     EXPECT_EQ(Text(failure), PeerText(1) + ": first");
                                     ++calls;
                                     called.release();
                                   };
                                 }});
    planes[1]->Fail(absl::InternalError("first"));
    planes[1]->Fail(absl::InternalError("second"));
    for (int i = 0; i < 3; ++i) called.acquire();
  }
  EXPECT_EQ(calls, 3);
}

TEST(TcpControlPlaneTest, RanksLeaveInAnyOrderWithoutAFailure) {
  for (const bool parents_first : {true, false}) {
    auto planes = Connect({.size = 7, .fan_out = 2});
    if (!parents_first) std::reverse(planes.begin(), planes.end());
    for (auto& plane : planes) {
      EXPECT_EQ(plane->failure(), absl::OkStatus());
      plane->Depart();
      plane.reset();
    }
  }
}

TEST(TcpControlPlaneTest, MessageSentBeforeLeavingArrives) {
  for (int round = 0; round < 20; ++round) {
    auto planes = Connect({.size = 3, .fan_out = 1});
    std::thread leaving([&] {
      ASSERT_EQ(planes[0]->Broadcast("last"), absl::OkStatus());
      planes[0]->Depart();
      planes[0].reset();
    });
    EXPECT_EQ(ReceiveSome(*planes[1]).broadcasts.at(0), "last");
    EXPECT_EQ(ReceiveSome(*planes[2]).broadcasts.at(0), "last");
    leaving.join();
  }
}

}  // namespace
}  // namespace ronda::testing
