// SPDX-License-Identifier: Apache-2.0

// Ranks as threads of one process, over real sockets on loopback: how they connect, and how their job ends.
#include "runtime/control/grpc/grpc_control_plane.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <semaphore>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/ronda/v1/control.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/control/tree/control_frame.h"
#include "tests/runtime/control/grpc/grpc_ranks.h"
#include "tests/runtime/control/grpc/tcp_proxy.h"
#include "tests/runtime/net/clients.h"

namespace ronda::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

std::string PeerText(RankId rank) { return absl::StrCat("rank ", rank, " (host localhost, pid ", getpid(), ")"); }

// Receives until a message has come. The rank must be one that gets only one kind of message.
ControlPlane::Inbox ReceiveSome(ControlPlane& control) {
  for (;;) {
    ControlPlane::Inbox inbox = *control.Receive();
    if (!inbox.to_coordinator.empty() || !inbox.broadcasts.empty()) return inbox;
    control.Wait(absl::InfiniteFuture());
  }
}

TEST(GrpcControlPlaneTest, TreeOfSixtySixRanksCarriesReportsAndBroadcasts) {
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

TEST(GrpcControlPlaneTest, ACallerOfAnotherUserIsRefusedWhereThisUsersAreServed) {
  if (!CanBeOtherUser()) GTEST_SKIP();
  const auto listener =
      *ControlListener::Start(*ResolveEndpoint("127.0.0.1", 0), kHostsPlugin, MessageServer::Callers::kThisUser);
  const UniqueFd caller = AsOtherUser([&] { return ConnectTo(*ResolveEndpoint("127.0.0.1", listener->port())); });
  EXPECT_EQ(send(caller.get(), "PRI", 3, MSG_NOSIGNAL), 3);
  char byte = 0;
  EXPECT_LE(recv(caller.get(), &byte, 1, 0), 0) << "the connection has been ended";
}

TEST(GrpcControlPlaneTest, MessagesOfManyMebibytesTravelBothWays) {
  const auto planes = Connect({.size = 2});
  std::string text(size_t{64} << 20, '\0');
  for (size_t i = 0; i < text.size(); i += 4096) text[i] = static_cast<char>(i >> 12);
  ASSERT_EQ(planes[1]->SendToCoordinator(text), absl::OkStatus());
  const ControlPlane::Inbox inbox = ReceiveSome(*planes[0]);
  ASSERT_EQ(inbox.to_coordinator.size(), 1U);
  EXPECT_EQ(inbox.to_coordinator[0].from, 1);
  EXPECT_TRUE(inbox.to_coordinator[0].payload == text);
  ASSERT_EQ(planes[0]->Broadcast(text), absl::OkStatus());
  EXPECT_TRUE(ReceiveSome(*planes[1]).broadcasts.at(0) == text);
}

TEST(GrpcControlPlaneTest, BroadcastsNeedNoHelpFromTheRanksInBetween) {
  const auto planes = Connect({.size = 4, .fan_out = 1});
  ASSERT_EQ(planes[0]->Broadcast("x"), absl::OkStatus());
  EXPECT_EQ(ReceiveSome(*planes[3]).broadcasts.at(0), "x");
}

TEST(GrpcControlPlaneTest, MissingRankIsNamedToEverybody) {
  auto options = OptionsOf({.size = 4, .fan_out = 2, .adapt = [](GrpcControlPlaneOptions& options) {
                              options.start_timeout = absl::Milliseconds(1500);
                            }});
  options.erase(options.begin() + 3);
  const GrpcPlanes planes = ConnectAll(std::move(options));
  for (const auto& plane : planes) {
    EXPECT_EQ(plane.status(),
              absl::DeadlineExceededError(absl::StrCat("no control connection within 1.5s from ", PeerText(3))));
  }
}

TEST(GrpcControlPlaneTest, ParentThatCannotBeReachedIsNamedWithItsAddress) {
  auto options = OptionsOf(
      {.size = 2, .adapt = [](GrpcControlPlaneOptions& options) { options.start_timeout = absl::Milliseconds(1500); }});
  const std::string address = ToString(options[1].parent);
  options[0].listener.reset();
  const absl::Status status = ConnectGrpcControlPlane(std::move(options[1])).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(status),
              HasSubstr(absl::StrCat(PeerText(1), " found no ", PeerText(0), " at ", address, " within 1.5s")));
}

TEST(GrpcControlPlaneTest, WrongSecretIsRefusedAndNamedInTheEnd) {
  const GrpcPlanes planes = TryConnect({.size = 3, .adapt = [](GrpcControlPlaneOptions& options) {
                                          options.start_timeout = absl::Milliseconds(1500);
                                          if (options.rank == 2) options.secret = "guess";
                                        }});
  const std::string refusal = absl::StrCat(PeerText(2), " has another job secret than ", PeerText(0));
  EXPECT_EQ(planes[2].status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(planes[2].status()), HasSubstr(refusal));
  EXPECT_EQ(planes[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(planes[0].status()), AllOf(HasSubstr(absl::StrCat("from ", PeerText(2))), HasSubstr(refusal)));
  EXPECT_EQ(planes[1].status(), planes[0].status());
}

TEST(GrpcControlPlaneTest, BeyondLoopbackASecretIsNeeded) {
  auto options = OptionsOf({.size = 2, .secret = ""});
  options[1].parent = *ResolveEndpoint("192.0.2.7", 1);
  EXPECT_EQ(ConnectGrpcControlPlane(std::move(options[1])).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(GrpcControlPlaneTest, TwinIsRefusedAndTheJobGoesOn) {
  auto options = OptionsOf({.size = 2});
  auto twin = OptionsOf({.size = 2});
  twin[1].parent = options[0].parent = options[1].parent;
  const auto planes = ConnectAll(std::move(options));
  ASSERT_TRUE(planes[1].ok());
  const absl::Status refused = ConnectGrpcControlPlane(std::move(twin[1])).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(refused), HasSubstr(absl::StrCat(PeerText(1), " has connected already")));
  ASSERT_EQ((*planes[1])->SendToCoordinator("x"), absl::OkStatus());
  EXPECT_EQ(ReceiveSome(**planes[0]).to_coordinator.size(), 1U);
}

// The caller is a program that uses gRPC, but sends no valid control messages.
TEST(GrpcControlPlaneTest, UnauthenticatedCallerIsTurnedAwayAndTheJobGoesOn) {
  auto options = OptionsOf({.size = 2});
  const auto stub = v1::Control::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", options[0].listener->port()), grpc::InsecureChannelCredentials()));
  const auto planes = ConnectAll(std::move(options));
  ASSERT_TRUE(planes[0].ok());
  std::string frame = Encode(BroadcastFrame{.payload = "x"});
  frame.insert(0, std::string({static_cast<char>(frame.size()), '\0', '\0', '\0'}));
  for (const std::string& words : {frame, std::string("\xff\xff\xff\xff"), std::string(1000, '\0')}) {
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    v1::ControlPiece piece;
    piece.set_data(words);
    stream->Write(piece);
    while (stream->Read(&piece)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ((*planes[0])->failure(), absl::OkStatus());
}

TEST(GrpcControlPlaneTest, WireThatBreaksIsTheFailureOfBothEnds) {
  auto options = OptionsOf({.size = 3, .fan_out = 1});
  TcpProxy wire(options[2].parent.port);
  options[2].parent.port = wire.port();
  const auto planes = ConnectAll(std::move(options));
  ASSERT_TRUE(planes[2].ok()) << planes[2].status();
  wire.Cut();
  const std::string gone = " is gone: its connection closed";
  EXPECT_EQ(Text(AwaitFailure(**planes[2])), PeerText(1) + gone);
  EXPECT_EQ(Text(AwaitFailure(**planes[1])), PeerText(2) + gone);
  EXPECT_EQ(Text(AwaitFailure(**planes[0])), PeerText(2) + gone);
}

TEST(GrpcControlPlaneTest, WireThatFallsSilentIsNoticedByBothEnds) {
  auto options = OptionsOf({.size = 3, .fan_out = 1, .adapt = [](GrpcControlPlaneOptions& options) {
                              options.heartbeat = absl::Milliseconds(50);
                              options.heartbeat_timeout = absl::Seconds(1);
                            }});
  TcpProxy wire(options[2].parent.port);
  options[2].parent.port = wire.port();
  const auto planes = ConnectAll(std::move(options));
  ASSERT_TRUE(planes[2].ok()) << planes[2].status();
  wire.Freeze();
  const std::string silent = " gave no sign of life for 1s (host down or network cut?)";
  EXPECT_EQ(Text(AwaitFailure(**planes[2])), PeerText(1) + silent);
  EXPECT_EQ(Text(AwaitFailure(**planes[1])), PeerText(2) + silent);
  EXPECT_EQ(Text(AwaitFailure(**planes[0])), PeerText(2) + silent);
}

TEST(GrpcControlPlaneTest, HeartbeatsKeepAnIdleJobAlive) {
  const auto planes = Connect({.size = 3, .fan_out = 1, .adapt = [](GrpcControlPlaneOptions& options) {
                                 options.heartbeat = absl::Milliseconds(20);
                                 options.heartbeat_timeout = absl::Seconds(1);
                               }});
  planes[0]->Wait(SteadyNow() + absl::Milliseconds(1500));
  for (const auto& plane : planes) EXPECT_EQ(plane->failure(), absl::OkStatus());
}

TEST(GrpcControlPlaneTest, FailureIsCalledOutOnceOnEveryRank) {
  std::counting_semaphore<8> called(0);
  std::atomic<int> calls{0};
  {
    const auto planes = Connect({.size = 3, .adapt = [&](GrpcControlPlaneOptions& options) {
                                   options.on_failure = [&](const absl::Status& failure) {
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

TEST(GrpcControlPlaneTest, RanksLeaveInAnyOrderWithoutAFailure) {
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

TEST(GrpcControlPlaneTest, MessageSentBeforeLeavingArrives) {
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

TEST(GrpcControlPlaneTest, ListenerThatNobodyUsesTurnsRanksAway) {
  auto options = OptionsOf(
      {.size = 2, .adapt = [](GrpcControlPlaneOptions& options) { options.start_timeout = absl::Seconds(2); }});
  absl::Status status;
  std::thread child([&] { status = ConnectGrpcControlPlane(std::move(options[1])).status(); });
  absl::SleepFor(absl::Milliseconds(100));  // usually enough to connect; the test passes in any case
  options[0].listener.reset();
  child.join();
  EXPECT_FALSE(status.ok());
}

}  // namespace
}  // namespace ronda::testing
