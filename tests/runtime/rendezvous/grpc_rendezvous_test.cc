// SPDX-License-Identifier: Apache-2.0

// Tests rank 0's server and its clients as threads of one process, over real sockets on loopback.
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/ronda/v1/rendezvous.grpc.pb.h"
#include "runtime/base/clock.h"
#include "runtime/net/sockets.h"
#include "runtime/rendezvous/grpc_rendezvous.h"
#include "runtime/rendezvous/rendezvous_codec.h"
#include "tests/runtime/net/clients.h"
#include "tests/runtime/rendezvous/claims.h"

namespace ronda {
namespace {

using ::ronda::testing::AsOtherUser;
using ::ronda::testing::CanBeOtherUser;
using ::ronda::testing::ClaimOf;
using ::ronda::testing::ConnectTo;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kSecret[] = "open sesame";
constexpr char kPlugin[] = "runtime/net/libronda_hosts.so";

std::string Text(const absl::Status& status) { return std::string(status.message()); }

RendezvousServer::Options ServerOptions(int size, const std::string& host = "127.0.0.1") {
  return {.plugin = kPlugin,
          .endpoint = *ResolveEndpoint(host, 0),
          .secret = kSecret,
          .job_id = "job",
          .claim = ClaimOf(0, size)};
}

// Returns the options with which `rank` joins the rendezvous at `server`.
RendezvousClientOptions ClientOptions(const RendezvousServer& server, RankId rank, int size,
                                      const std::string& host = "127.0.0.1") {
  return {.plugin = kPlugin,
          .endpoint = *ResolveEndpoint(host, server.port()),
          .secret = kSecret,
          .claim = ClaimOf(rank, size)};
}

std::unique_ptr<RendezvousServer> StartServer(const RendezvousServer::Options& options) {
  absl::StatusOr<std::unique_ptr<RendezvousServer>> server = RendezvousServer::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

// Joins ranks 1 to size-1 in the given `order`, and expects all ranks to get the same table.
void ExpectAllMeet(const std::string& host, int size, const std::vector<RankId>& order) {
  const std::unique_ptr<RendezvousServer> server = StartServer(ServerOptions(size, host));
  std::vector<absl::StatusOr<MemberList>> results(size);
  std::vector<std::thread> ranks;
  for (const RankId rank : order) {
    ranks.emplace_back([&, rank] { results[rank] = JoinRendezvous(ClientOptions(*server, rank, size, host)); });
  }
  results[0] = server->Await();
  for (std::thread& rank : ranks) rank.join();
  for (const absl::StatusOr<MemberList>& result : results) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->job_id, "job");
    ASSERT_EQ(result->members.size(), static_cast<size_t>(size));
    for (RankId rank = 0; rank < size; ++rank) EXPECT_EQ(result->members[rank].peer.pid, 1000 + rank);
  }
}

TEST(RendezvousGrpcTest, RanksMeetInWhateverOrderTheyCome) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (const int size : {1, 2, 3, 5, 8}) {
    std::vector<RankId> order(size - 1);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), random);
    ExpectAllMeet("127.0.0.1", size, order);
  }
}

TEST(RendezvousGrpcTest, RanksMeetByNameAndOverIPv6) {
  ExpectAllMeet("localhost", 2, {1});
  if (!ListenAt(*ResolveEndpoint("::1", 0)).ok()) GTEST_SKIP() << "this host has no IPv6 loopback";
  ExpectAllMeet("::1", 2, {1});
}

TEST(RendezvousGrpcTest, ClientThatComesBeforeTheServerWaitsForIt) {
  UniqueFd no_server = *ListenAt(*ResolveEndpoint("127.0.0.1", 0));
  const int port = *BoundPort(no_server.get());
  absl::StatusOr<MemberList> joined;
  std::thread early([&] {
    joined = JoinRendezvous({.plugin = kPlugin,
                             .endpoint = *ResolveEndpoint("127.0.0.1", port),
                             .secret = kSecret,
                             .claim = ClaimOf(1, 2)});
  });
  pollfd attempt = {.fd = no_server.get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&attempt, 1, -1), 1);
  no_server.Reset();  // and with it the first attempt to connect
  RendezvousServer::Options options = ServerOptions(2);
  options.endpoint.port = port;
  const std::unique_ptr<RendezvousServer> server = StartServer(options);
  EXPECT_TRUE(server->Await().ok());
  early.join();
  EXPECT_TRUE(joined.ok()) << joined.status();
}

TEST(RendezvousGrpcTest, WrongSecretIsRefusedAndTheJobGoesOn) {
  const std::unique_ptr<RendezvousServer> server = StartServer(ServerOptions(2));
  RendezvousClientOptions unproven = ClientOptions(*server, 1, 2);
  unproven.secret = "guess";
  const absl::Status refused = JoinRendezvous(unproven).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Text(refused), AllOf(HasSubstr("rank 1 (host a, pid 1001)"), HasSubstr("rank 0 (host a, pid 1000)")));

  std::thread friendly([&] { EXPECT_TRUE(JoinRendezvous(ClientOptions(*server, 1, 2)).ok()); });
  EXPECT_TRUE(server->Await().ok());
  friendly.join();
}

TEST(RendezvousGrpcTest, MissingRankIsNamedToEverybodyAtTheDeadline) {
  RendezvousServer::Options options = ServerOptions(3);
  options.timeout = absl::Milliseconds(1500);
  const std::unique_ptr<RendezvousServer> server = StartServer(options);
  absl::Status one;
  std::thread rank([&] { one = JoinRendezvous(ClientOptions(*server, 1, 3)).status(); });
  const absl::Status zero = server->Await().status();
  rank.join();
  EXPECT_EQ(zero.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(zero), HasSubstr("rank 2 of 3 did not join rank 0 (host a, pid 1000) within 1.5s"));
  EXPECT_EQ(one, zero);
}

TEST(RendezvousGrpcTest, AbsentServerIsExplained) {
  int port = 0;
  { port = StartServer(ServerOptions(2))->port(); }
  const absl::Status status = JoinRendezvous({.plugin = kPlugin,
                                              .endpoint = *ResolveEndpoint("localhost", port),
                                              .secret = kSecret,
                                              .claim = ClaimOf(1, 2),
                                              .timeout = absl::Milliseconds(200)})
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(status), AllOf(HasSubstr("rank 1 (host a, pid 1001) found no rank 0"),
                                  HasSubstr(absl::StrCat("localhost:", port)), HasSubstr("MASTER_PORT")));
}

// The server counts the connection: it has accepted the connection before the client gets an answer.
TEST(RendezvousGrpcTest, RankZeroCountsTheConnectionsThatDidNotAuthenticate) {
  RendezvousServer::Options options = ServerOptions(2);
  options.timeout = absl::Milliseconds(500);
  const std::unique_ptr<RendezvousServer> server = StartServer(options);
  const auto stub = v1::Rendezvous::NewStub(
      grpc::CreateChannel(absl::StrCat("ipv4:127.0.0.1:", server->port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ChallengeResponse challenge;
  ASSERT_TRUE(stub->Challenge(&context, {}, &challenge).ok());
  EXPECT_THAT(Text(server->Await().status()),
              AllOf(HasSubstr("did not join"), HasSubstr(absl::StrCat("port ", server->port(),
                                                                      " had 1 connection that "
                                                                      "did not authenticate as a rank of this job"))));
}

TEST(RendezvousGrpcTest, TwinIsRefusedAndTheRankThatWaitsIsToldWhenRankZeroGivesUp) {
  std::unique_ptr<RendezvousServer> server = StartServer(ServerOptions(3));
  const RendezvousClientOptions options = ClientOptions(*server, 1, 3);
  std::counting_semaphore<2> finished(0);
  const auto join = [&](absl::Status* status) {
    *status = JoinRendezvous(options).status();
    finished.release();
  };
  absl::Status statuses[2];
  std::thread first(join, &statuses[0]);
  std::thread second(join, &statuses[1]);
  finished.acquire();  // one is refused, so the other one waits
  server.reset();
  first.join();
  second.join();
  const bool first_waited = absl::IsCancelled(statuses[0]);
  EXPECT_THAT(Text(statuses[first_waited ? 0 : 1]), HasSubstr("rank 0 (host a, pid 1000) does not wait any more"));
  EXPECT_EQ(statuses[first_waited ? 1 : 0].code(), absl::StatusCode::kAlreadyExists);
}

TEST(RendezvousGrpcTest, PlaceOfARankThatHangsUpIsFreeAgain) {
  const std::unique_ptr<RendezvousServer> server = StartServer(ServerOptions(3));
  const auto stub = v1::Rendezvous::NewStub(
      grpc::CreateChannel(absl::StrCat("127.0.0.1:", server->port()), grpc::InsecureChannelCredentials()));
  v1::ChallengeResponse challenge;
  grpc::ClientContext challenge_context;
  ASSERT_TRUE(stub->Challenge(&challenge_context, v1::ChallengeRequest(), &challenge).ok());
  v1::JoinRequest request = EncodeClaim(ClaimOf(1, 3));
  request.set_nonce(challenge.nonce());
  request.set_proof(JoinProof(kSecret, challenge.nonce(), ClaimOf(1, 3)));
  grpc::ClientContext join_context;
  join_context.set_deadline(absl::ToChronoTime(SteadyNow() + absl::Milliseconds(100)));
  v1::JoinResponse response;
  EXPECT_EQ(stub->Join(&join_context, request, &response).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  std::thread two([&] { EXPECT_TRUE(JoinRendezvous(ClientOptions(*server, 2, 3)).ok()); });
  absl::StatusOr<MemberList> one;
  do {  // the server may notice the lost client a moment later
    one = JoinRendezvous(ClientOptions(*server, 1, 3));
  } while (absl::IsAlreadyExists(one.status()));
  EXPECT_TRUE(one.ok()) << one.status();
  EXPECT_TRUE(server->Await().ok());
  two.join();
}

TEST(RendezvousGrpcTest, TwoJobsCannotShareAPort) {
  const std::unique_ptr<RendezvousServer> server = StartServer(ServerOptions(2));
  RendezvousServer::Options options = ServerOptions(2);
  options.endpoint.port = server->port();
  const absl::Status status = RendezvousServer::Start(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Text(status), HasSubstr("RONDA_MASTER_PORT"));
}

TEST(RendezvousGrpcTest, BeyondLoopbackBothSidesNeedASecret) {
  RendezvousServer::Options server = ServerOptions(2, "192.0.2.7");
  server.secret.clear();
  EXPECT_THAT(Text(RendezvousServer::Start(server).status()), HasSubstr("RONDA_JOB_SECRET"));
  const RendezvousClientOptions client = {
      .plugin = kPlugin, .endpoint = *ResolveEndpoint("192.0.2.7", 1), .claim = ClaimOf(1, 2)};
  EXPECT_THAT(Text(JoinRendezvous(client).status()), HasSubstr("RONDA_JOB_SECRET"));
}

// Tests a job without a secret, in which each side checks which user the other side belongs to.
class RendezvousOfOneUserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CanBeOtherUser()) GTEST_SKIP();
  }

  static RendezvousServer::Options Server(int port = 0) {
    RendezvousServer::Options options = ServerOptions(2);
    options.endpoint.port = port;
    options.secret.clear();
    return options;
  }

  static absl::Status Join(int port) {
    return JoinRendezvous({.plugin = kPlugin, .endpoint = *ResolveEndpoint("127.0.0.1", port), .claim = ClaimOf(1, 2)})
        .status();
  }

  static void ExpectRefusal(const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    EXPECT_THAT(Text(status), HasSubstr("is a process of user 65534"));
  }
};

TEST_F(RendezvousOfOneUserTest, RankZeroRefusesACallerOfAnotherUserAndTheJobGoesOn) {
  const std::unique_ptr<RendezvousServer> server = StartServer(Server());
  const UniqueFd caller = AsOtherUser([&] { return ConnectTo(*ResolveEndpoint("127.0.0.1", server->port())); });
  EXPECT_EQ(send(caller.get(), "PRI", 3, MSG_NOSIGNAL), 3);
  char byte = 0;
  EXPECT_LE(recv(caller.get(), &byte, 1, 0), 0) << "the connection has been ended";
  std::thread rank([&] { EXPECT_EQ(Join(server->port()), absl::OkStatus()); });
  EXPECT_TRUE(server->Await().ok());
  rank.join();
}

TEST_F(RendezvousOfOneUserTest, RankZeroOfAnotherUserIsRefused) {
  const std::unique_ptr<RendezvousServer> server = AsOtherUser([] { return StartServer(Server()); });
  ExpectRefusal(Join(server->port()));
}

// A rank 0 of another user takes over the port and answers, after the rank has begun to call.
TEST_F(RendezvousOfOneUserTest, RankZeroOfAnotherUserThatComesLaterIsRefused) {
  UniqueFd listener = *ListenAt(*ResolveEndpoint("127.0.0.1", 0));
  const int port = *BoundPort(listener.get());
  std::thread rank([&] { ExpectRefusal(Join(port)); });
  pollfd caller = {.fd = listener.get(), .events = POLLIN};
  EXPECT_EQ(poll(&caller, 1, -1), 1);
  listener.Reset();
  const std::unique_ptr<RendezvousServer> server = AsOtherUser([&] { return StartServer(Server(port)); });
  rank.join();
}

}  // namespace
}  // namespace ronda
