// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/node_list.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "programs/rondarun/supervise/agent.h"
#include "runtime/base/clock.h"
#include "runtime/base/version.h"
#include "runtime/net/sockets.h"
#include "tests/testing/fakes.h"

namespace ronda {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeClock;
using ::testing::HasSubstr;

// A socket that listens on a port chosen by the system.
struct Server {
  UniqueFd fd;
  Endpoint endpoint;
};

Server Listen() {
  Endpoint endpoint = {.host = "127.0.0.1", .address = "127.0.0.1", .port = 0, .loopback = true};
  UniqueFd fd = *ListenAt(endpoint);
  sockaddr_in bound = {};
  socklen_t size = sizeof(bound);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  endpoint.port = ntohs(bound.sin_port);
  return {.fd = std::move(fd), .endpoint = endpoint};
}

UniqueFd Call(const Endpoint& endpoint) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(endpoint.port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// Reads all bytes that have arrived, and returns whether the other side has closed the connection.
bool IsClosed(const UniqueFd& socket) {
  char buffer[4096];
  ssize_t count = 0;
  do {
    count = recv(socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  } while (count > 0);
  return count == 0 || (errno != EAGAIN && errno != EINTR);
}

class NodeListTest : public ::testing::Test {
 protected:
  explicit NodeListTest(int max_nodes = 4, int min_slots = 1)
      : server_(Listen()),
        endpoint_(server_.endpoint),
        list_({.secret = "f00d",
               .own = {.name = "alpha", .slots = 2},
               .max_nodes = max_nodes,
               .min_slots = min_slots,
               .endpoint = endpoint_,
               .timeout = absl::Seconds(600)},
              std::move(server_.fd)) {
    list_.Begin({.on_hosts =
                     [this](const std::vector<JobMembership::Host>& hosts) {
                       std::vector<std::string> names;
                       for (const auto& host : hosts) names.push_back(absl::StrCat(host.name, ":", host.slots));
                       told_.push_back(names);
                     },
                 .on_shortage = [this](const std::string& what) { shortages_.push_back(what); },
                 .say = [this](absl::string_view text) { said_.emplace_back(text); },
                 .clock = &clock_});
  }

  // Runs the list, as the launcher's loop does, until the condition holds.
  void PumpUntil(const std::function<bool()>& condition) {
    const absl::Time end = SteadyNow() + absl::Minutes(2);
    while (!condition()) {
      ASSERT_LT(SteadyNow(), end) << "waited in vain";
      PollSet poll;
      list_.AddTo(&poll);
      EXPECT_TRUE(poll.Wait(absl::Milliseconds(5)).ok());
      list_.OnTime();
    }
  }

  // Makes a node join in another thread while this thread runs the list. Returns the node's result.
  absl::StatusOr<JoinedNode> Join(const NodeHello& hello, const std::string& secret = "f00d") {
    absl::StatusOr<JoinedNode> joined = absl::UnknownError("");
    std::atomic<bool> is_done = false;
    std::thread node([&] {
      joined = JoinLeader(endpoint_, secret, hello, SteadyNow() + absl::Minutes(1));
      is_done = true;
    });
    PumpUntil([&] { return is_done.load(); });
    node.join();
    return joined;
  }
  absl::StatusOr<JoinedNode> Join(const std::string& name, int slots = 2) {
    return Join({.version = kVersion, .name = name, .slots = slots});
  }

  FakeClock clock_;
  std::vector<std::string> said_;
  Server server_;
  const Endpoint endpoint_;
  std::vector<std::vector<std::string>> told_;
  std::vector<std::string> shortages_;
  NodeList list_;
};

TEST_F(NodeListTest, ANodeThatProvesItselfIsAHostOfTheJob) {
  const auto node = Join("beta", 3);
  ASSERT_TRUE(node.ok()) << node.status();
  EXPECT_EQ(node->name, "beta");
  EXPECT_THAT(told_, ElementsAre(ElementsAre("alpha:2", "beta:3")));
  EXPECT_EQ(list_.AddressOf("beta"), "127.0.0.1");
  EXPECT_THAT(said_, Contains("node beta (127.0.0.1) has come, with 3 slots"));
}

TEST_F(NodeListTest, NodesOfOneNameGetNamesOfTheirOwn) {
  std::vector<absl::StatusOr<JoinedNode>> nodes;
  for (int i = 0; i < 2; ++i) nodes.push_back(Join("alpha"));
  EXPECT_EQ(nodes[0]->name, "alpha-2");
  EXPECT_EQ(nodes[1]->name, "alpha-3");
  EXPECT_THAT(told_.back(), ElementsAre("alpha:2", "alpha-2:2", "alpha-3:2"));
}

TEST_F(NodeListTest, AWrongSecretIsSaidOnBothSides) {
  const auto node = Join({.version = kVersion, .name = "beta", .slots = 2}, "cafe");
  EXPECT_EQ(node.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(node.status().message()), HasSubstr("another RONDA_JOB_SECRET"));
  EXPECT_TRUE(told_.empty());
  // The refusal of a node is reported only once, even if it is refused again.
  EXPECT_FALSE(Join({.version = kVersion, .name = "beta", .slots = 2}, "cafe").ok());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("nodes join it at 127.0.0.1:"),
                                 "a node at 127.0.0.1 was refused: it has not proved that it knows RONDA_JOB_SECRET"));
}

TEST_F(NodeListTest, AnotherVersionIsRefusedWithBothNamed) {
  const auto node = Join({.version = "0.0.9", .name = "beta", .slots = 2});
  EXPECT_EQ(node.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(node.status().message()),
              HasSubstr(absl::StrCat("another version of Ronda: this one is of ", kVersion)));
  EXPECT_TRUE(told_.empty());
}

TEST_F(NodeListTest, ASilentCallerHoldsUpNobodyAndIsDroppedAfterTenSeconds) {
  const UniqueFd silent = Call(endpoint_);
  EXPECT_TRUE(Join("beta").ok());
  clock_.Advance(absl::Seconds(9));
  EXPECT_TRUE(Join("gamma").ok());
  EXPECT_FALSE(IsClosed(silent));
  EXPECT_LE(list_.deadline(), clock_.Now() + absl::Seconds(1));
  clock_.Advance(absl::Seconds(1));
  PumpUntil([&] { return IsClosed(silent); });
}

TEST_F(NodeListTest, ManySilentCallersHoldUpNobody) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(Call(endpoint_));
  EXPECT_TRUE(Join("beta").ok());
  int open = 0;
  for (const UniqueFd& socket : silent) open += IsClosed(socket) ? 0 : 1;
  EXPECT_LE(open, 64);
}

TEST_F(NodeListTest, NonsenseIsRefused) {
  const auto long_nonsense = std::string(3, '\xff');
  for (const std::string& text : {std::string(2, '\0'), long_nonsense, std::string("GET / HTTP/1.1\r\n\r\n")}) {
    const UniqueFd caller = Call(endpoint_);
    send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL);
    PumpUntil([&] { return IsClosed(caller); });
  }
  std::mt19937 random(20260117);
  for (int i = 0; i < 200; ++i) {
    const size_t size = random() % 300;
    std::string text = {static_cast<char>(size >> 8), static_cast<char>(size)};
    for (size_t j = 0; j < size; ++j) text.push_back(static_cast<char>(random()));
    const UniqueFd caller = Call(endpoint_);
    send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL);
    PumpUntil([&] { return IsClosed(caller); });
  }
  EXPECT_TRUE(told_.empty());
  EXPECT_LE(said_.size(), 4) << "a caller must not be able to fill the user's screen";
}

TEST_F(NodeListTest, ACallerThatGoesInTheMiddleOfItsHelloIsForgotten) {
  Call(endpoint_);
  const UniqueFd caller = Call(endpoint_);
  send(caller.get(), "\0", 1, MSG_NOSIGNAL);
  shutdown(caller.get(), SHUT_RDWR);
  EXPECT_TRUE(Join("beta").ok());
  PumpUntil([&] { return list_.deadline() == absl::InfiniteFuture(); });
}

class FullNodeListTest : public NodeListTest {
 protected:
  FullNodeListTest() : NodeListTest(/*max_nodes=*/2) {}
};

TEST_F(FullNodeListTest, ANodeTooManyIsToldAndGetsRoomWhenOneHasGone) {
  auto beta = Join("beta");
  ASSERT_TRUE(beta.ok());
  const auto gamma = Join("gamma");
  EXPECT_EQ(gamma.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(gamma.status().message(), "the job has 2 nodes, and takes no more (--nnodes)");
  beta->socket.Reset();
  PumpUntil([&] { return list_.count() == 1; });
  EXPECT_TRUE(Join("gamma").ok());
  EXPECT_THAT(told_.back(), ElementsAre("alpha:2", "gamma:2"));
}

TEST_F(NodeListTest, ANodeThatHasGoneIsListedNoMore) {
  auto beta = Join("beta");
  beta->socket.Reset();
  PumpUntil([&] { return told_.size() == 2; });
  EXPECT_THAT(told_.back(), ElementsAre("alpha:2"));
  EXPECT_EQ(list_.HandOver("beta"), -1);
}

TEST_F(NodeListTest, ANodeThatOthersLookAfterIsListedUntilTheySayThatItHasGone) {
  auto beta = Join("beta");
  EXPECT_GE(list_.HandOver("beta"), 0);
  beta->socket.Reset();
  EXPECT_TRUE(Join("gamma").ok());
  EXPECT_THAT(told_.back(), ElementsAre("alpha:2", "beta:2", "gamma:2"));
  const size_t told = told_.size();
  list_.OnLost("beta");
  EXPECT_EQ(told_.size(), told) << "the ends of its members come first";
  EXPECT_LE(list_.deadline(), clock_.Now());
  list_.OnTime();
  EXPECT_THAT(told_.back(), ElementsAre("alpha:2", "gamma:2"));
}

TEST_F(NodeListTest, ANodeThatComesBackIsAnotherOne) {
  ASSERT_TRUE(Join("beta").ok());
  list_.OnLost("beta");
  ASSERT_TRUE(Join("beta").ok());
  EXPECT_THAT(told_,
              ElementsAre(ElementsAre("alpha:2", "beta:2"), ElementsAre("alpha:2"), ElementsAre("alpha:2", "beta:2")));
}

class SmallNodeListTest : public NodeListTest {
 protected:
  SmallNodeListTest() : NodeListTest(/*max_nodes=*/4, /*min_slots=*/4) {}
};

TEST_F(SmallNodeListTest, TooFewNodesForTooLongAreAShortage) {
  clock_.Advance(absl::Seconds(599));
  list_.OnTime();
  EXPECT_TRUE(shortages_.empty());
  clock_.Advance(absl::Seconds(1));
  list_.OnTime();
  list_.OnTime();
  EXPECT_THAT(shortages_, ElementsAre("too few nodes have come within 10m (--elastic-timeout): 1 node with 2 slots, "
                                      "and the job needs 4 (--nnodes)"));
}

TEST_F(SmallNodeListTest, ANodeThatComesInTimeEndsTheShortage) {
  clock_.Advance(absl::Seconds(599));
  ASSERT_TRUE(Join("beta").ok());
  EXPECT_EQ(list_.deadline(), absl::InfiniteFuture());
  list_.OnLost("beta");
  list_.OnTime();
  EXPECT_EQ(list_.deadline(), clock_.Now() + absl::Seconds(600));
}

TEST_F(NodeListTest, NodesHearHowTheJobHasEnded) {
  auto node = Join("beta");
  ASSERT_TRUE(node.ok());
  // The node sends data that the list does not read.
  const std::string unread(100000, 'x');
  ASSERT_EQ(send(node->socket.get(), unread.data(), unread.size(), MSG_NOSIGNAL), unread.size());
  std::vector<AgentMessage> heard;
  std::thread reader([&] {
    AgentMessageReader messages(AgentMessageReader::Stream::kMessages);
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(node->socket.get(), buffer, sizeof(buffer))) > 0) {
      const auto bytes = absl::string_view(buffer, static_cast<size_t>(count));
      ASSERT_TRUE(messages.Feed(bytes, [&](AgentMessage message) { heard.push_back(std::move(message)); }).ok());
    }
    EXPECT_EQ(count, 0);
    node->socket.Reset();
  });
  list_.Conclude(7, "member 3 exited with code 7");
  reader.join();
  EXPECT_THAT(heard, ElementsAre(AgentMessage{
                         .kind = AgentMessage::Kind::kEnd, .numbers = {7}, .texts = {"member 3 exited with code 7"}}));
}

// -- The node's side --

const NodeHello& Beta() {
  static const auto& hello = *new NodeHello{.version = kVersion, .name = "beta", .slots = 2};
  return hello;
}

// Returns a node's error when the server answers with `text`.
absl::Status StatusAgainst(const std::string& text) {
  const Server server = Listen();
  std::thread thread([&] {
    pollfd request = {.fd = server.fd.get(), .events = POLLIN, .revents = 0};
    poll(&request, 1, -1);
    const auto call = AcceptNode(server.fd.get());
    ASSERT_TRUE(call.ok());
    send(call->socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    shutdown(call->socket.get(), SHUT_WR);
    request.fd = call->socket.get();
    // Reads until the node closes its end.
    char buffer[4096];
    do poll(&request, 1, -1);
    while (recv(call->socket.get(), buffer, sizeof(buffer), 0) > 0);
  });
  const absl::Status status = JoinLeader(server.endpoint, "f00d", Beta(), SteadyNow() + absl::Minutes(1)).status();
  thread.join();
  return status;
}

TEST(JoinLeaderTest, AddressWithoutALeaderIsReported) {
  EXPECT_EQ(StatusAgainst("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3 and much more of it\r\n").code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusAgainst("").code(), absl::StatusCode::kUnavailable);
  const std::string challenge = NodeCallee::Create("f00d")->challenge();
  EXPECT_EQ(StatusAgainst(challenge).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusAgainst(challenge + "\xff\xff").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusAgainst(challenge + std::string("\0\x30", 2) + std::string(48, 'a')).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(JoinLeaderTest, ASilentLeaderIsWaitedForUntilTheDeadline) {
  const Server server = Listen();
  const auto node = JoinLeader(server.endpoint, "f00d", Beta(), SteadyNow() + absl::Milliseconds(50));
  EXPECT_EQ(node.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(JoinLeaderTest, ANodeMayTryAgainWhereNobodyListens) {
  Endpoint endpoint;
  {
    const Server server = Listen();
    endpoint = server.endpoint;
  }
  const auto node = JoinLeader(endpoint, "f00d", Beta(), SteadyNow() + absl::Minutes(1));
  EXPECT_EQ(node.status(), absl::UnavailableError("Connection refused"));
}

}  // namespace
}  // namespace ronda
