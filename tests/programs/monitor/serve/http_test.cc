// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "programs/monitor/serve/http_server.h"
#include "runtime/base/unique_fd.h"
#include "tests/programs/monitor/serve/http_client.h"
#include "tests/programs/monitor/serve/memory_byte_stream.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::MemoryByteStream;
using ::testing::Not;
using testing::Receive;
using testing::Send;
using ::testing::StartsWith;

constexpr char kToken[] = "0123456789abcdef";

Access MakeAccess() { return Access(kToken, {"localhost", "127.0.0.1"}); }

std::optional<Page> Pages(absl::string_view path) {
  if (path == "/long") return Page{.type = "text/plain", .body = std::string(1 << 20, 'x')};
  if (path != "/metrics") return std::nullopt;
  return Page{.type = "text/plain; version=0.0.4", .body = "up 1\n", .policy = "default-src 'self'"};
}

struct Question {
  std::string line = "GET /metrics HTTP/1.1";
  std::vector<std::string> headers = {"Host: localhost:9", absl::StrCat("Authorization: Bearer ", kToken)};
};

std::string TextOf(const Question& question) {
  return absl::StrCat(question.line, "\r\n", absl::StrJoin(question.headers, "\r\n"), "\r\n\r\n");
}

std::string SendBytes(const std::string& request, size_t piece = 1 << 16) {
  MemoryByteStream stream(request, piece);
  HttpSite(MakeAccess(), Pages).Answer(&stream);
  return stream.written();
}

std::string Ask(const Question& question) { return SendBytes(TextOf(question)); }

TEST(HttpSiteTest, AnswersWithThePageAndHeadersThatKeepItToItself) {
  const std::string reply = Ask(Question());
  EXPECT_THAT(reply,
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nup 1\n"),
                    HasSubstr("Content-Type: text/plain; version=0.0.4\r\n"), HasSubstr("Content-Length: 5\r\n")));
  EXPECT_THAT(reply,
              AllOf(HasSubstr("Connection: close\r\n"), HasSubstr("Cache-Control: no-store\r\n"),
                    HasSubstr("X-Content-Type-Options: nosniff\r\n"), HasSubstr("Referrer-Policy: no-referrer\r\n"),
                    HasSubstr("Content-Security-Policy: default-src 'self'\r\n")));
  EXPECT_THAT(reply, Not(HasSubstr("default-src 'none'")));
}

TEST(HttpSiteTest, AnswersARequestThatComesByteByByte) {
  EXPECT_THAT(SendBytes(TextOf({}), 1), EndsWith("\r\n\r\nup 1\n"));
}

TEST(HttpSiteTest, RefusesRequestsWithoutTheTokenAndSaysHowToSendIt) {
  const std::string reply = Ask({.headers = {"Host: localhost"}});
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 401 "), HasSubstr("WWW-Authenticate: Bearer"),
                           HasSubstr("WWW-Authenticate: Basic"), HasSubstr("the token is missing: send"),
                           HasSubstr("Content-Security-Policy: default-src 'none'"), Not(HasSubstr("up 1"))));
  EXPECT_THAT(Ask({.headers = {"Host: localhost", "Authorization: Bearer 0123456789abcdeX"}}),
              AllOf(StartsWith("HTTP/1.1 401 "), HasSubstr("the token is wrong"), Not(HasSubstr("up 1"))));
}

TEST(HttpSiteTest, RefusesOtherNamesOfTheHost) {
  for (const char* const host : {"Host: evil.example", "X: y", "Host:", "Host: localhost\r\nHost: localhost"}) {
    EXPECT_THAT(Ask({.headers = {host, absl::StrCat("Authorization: Bearer ", kToken)}}),
                AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr("this is not the name of the monitor"),
                      Not(HasSubstr("WWW-Authenticate")), Not(HasSubstr("up 1"))))
        << host;
  }
}

TEST(HttpSiteTest, KeepsPathsToItselfUntilTheTokenIsThere) {
  EXPECT_THAT(Ask({.line = "GET /none HTTP/1.1", .headers = {"Host: localhost"}}), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Ask({.line = "GET /none HTTP/1.1"}),
              AllOf(StartsWith("HTTP/1.1 404 "), HasSubstr("there are /, /metrics and /api/v1/job")));
}

TEST(HttpSiteTest, OnlyAnswersGet) {
  for (const char* const method : {"HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PRI"}) {
    EXPECT_THAT(Ask({.line = absl::StrCat(method, " /metrics HTTP/1.1")}),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET"), Not(HasSubstr("up 1"))))
        << method;
  }
}

TEST(HttpSiteTest, DoesNotReadABody) {
  Question question = {.line = "POST /metrics HTTP/1.1"};
  question.headers.emplace_back("Content-Length: 1000000");
  const std::string request = TextOf(question) + std::string(1'000'000, 'x');
  MemoryByteStream stream(request);
  HttpSite(MakeAccess(), Pages).Answer(&stream);
  EXPECT_THAT(stream.written(), StartsWith("HTTP/1.1 405 "));
  EXPECT_GE(stream.unread(), request.size() - HttpSite::kMostRequestBytes);
}

TEST(HttpSiteTest, ReadsNoMoreThanItsLimit) {
  for (const std::string& start : {std::string("GET /"), TextOf({}).substr(0, 40) + "X: ", std::string()}) {
    const std::string request = start + std::string(1 << 20, 'x');
    MemoryByteStream stream(request);
    HttpSite(MakeAccess(), Pages).Answer(&stream);
    EXPECT_THAT(stream.written(), Not(HasSubstr("up 1")));
    EXPECT_EQ(stream.unread(), request.size() - HttpSite::kMostRequestBytes);
  }
  std::string many = "GET /metrics HTTP/1.1\r\n";
  while (many.size() < (1 << 20)) many += "A: b\r\n";
  MemoryByteStream stream(many);
  HttpSite(MakeAccess(), Pages).Answer(&stream);
  EXPECT_EQ(stream.unread(), many.size() - HttpSite::kMostRequestBytes);
}

TEST(HttpSiteTest, SendsPagesWholeWhateverPartsAreAskedFor) {
  std::string ranges = "Range: bytes=0-1";
  while (ranges.size() < HttpSite::kMostRequestBytes - 300) ranges += ",0-1";
  Question question;
  question.headers.push_back(ranges);
  EXPECT_THAT(Ask(question), AllOf(StartsWith("HTTP/1.1 200 "), EndsWith("\r\n\r\nup 1\n")));
  question.headers.back() = "Accept-Encoding: gzip, br";
  EXPECT_THAT(Ask(question), EndsWith("\r\n\r\nup 1\n"));
}

TEST(HttpSiteTest, SaysNothingOfARequestThatItCannotRead) {
  for (const char* const request :
       {"", "\r\n\r\n", "GET\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n", "\x16\x03\x01\x02"}) {
    EXPECT_THAT(SendBytes(std::string(request)), Not(HasSubstr("up 1"))) << request;
  }
}

// -- Over TCP --

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(const HttpServer::Options& options) {
    auto server = HttpServer::Start({.host = "127.0.0.1", .address = "127.0.0.1", .loopback = true}, &site_, options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  UniqueFd Connect() const { return testing::Connect(server_->port()); }

  const HttpSite site_{MakeAccess(), Pages};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersOneAfterTheOtherAndAtOnce) {
  Start({.connections = 2, .timeout = absl::Minutes(1)});
  for (int i = 0; i < 3; ++i) {
    const UniqueFd first = Connect(), second = Connect();
    Send(second, TextOf({}));
    EXPECT_THAT(Receive(second), EndsWith("up 1\n"));
    Send(first, TextOf({.line = "GET /long HTTP/1.1"}));
    EXPECT_THAT(Receive(first), EndsWith(std::string(1 << 20, 'x')));
  }
}

TEST_F(HttpServerTest, ConnectionsBeyondItsLimitWaitForTheirTurn) {
  Start({.connections = 1, .timeout = absl::Minutes(1)});
  const UniqueFd first = Connect();
  Send(first, "GET /met");
  const UniqueFd second = Connect();
  Send(second, TextOf({}));
  Send(first, TextOf({}).substr(8));
  EXPECT_THAT(Receive(first), EndsWith("up 1\n"));
  EXPECT_THAT(Receive(second), EndsWith("up 1\n"));
}

TEST_F(HttpServerTest, ConnectionsThatSayNothingKeepNobodyWaiting) {
  Start({.connections = 1, .timeout = absl::Hours(1)});
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(Connect());
  const UniqueFd next = Connect();
  Send(next, TextOf({}));
  EXPECT_THAT(Receive(next), EndsWith("up 1\n"));
}

TEST_F(HttpServerTest, ConnectionThatStopsInItsRequestIsClosedAndTheNextOneAnswered) {
  Start({.connections = 1, .timeout = absl::Milliseconds(20)});
  const UniqueFd slow = Connect();
  Send(slow, "GET /");
  EXPECT_THAT(Receive(slow), Not(HasSubstr("up 1")));
  // The server allows every connection only a short time for its request, so on a busy machine the test may need
  // several connections to get a reply.
  std::string reply;
  for (int i = 0; i < 1000 && reply.empty(); ++i) {
    const UniqueFd next = Connect();
    Send(next, TextOf({}));
    reply = Receive(next);
  }
  EXPECT_THAT(reply, EndsWith("up 1\n"));
}

TEST_F(HttpServerTest, PortInUseIsSaid) {
  Start({});
  const Endpoint taken = {.host = "127.0.0.1", .address = "127.0.0.1", .port = server_->port(), .loopback = true};
  const auto second = HttpServer::Start(taken, &site_, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(absl::StrCat("cannot listen on 127.0.0.1:", server_->port())));
}

}  // namespace
}  // namespace ronda
