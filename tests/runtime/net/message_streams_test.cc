// SPDX-License-Identifier: Apache-2.0

// Tests streams with both ends in one process, a server's clients, and the search for the plugin.
#include "runtime/net/message_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "runtime/net/hosts_plugin.h"
#include "runtime/net/served_call.h"
#include "tests/runtime/net/clients.h"

namespace ronda {
namespace {

using ::ronda::testing::AsOtherUser;
using ::ronda::testing::CanBeOtherUser;
using ::ronda::testing::ConnectTo;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPlugin[] = "runtime/net/libronda_hosts.so";

// Joins all messages into one answer. When the other end has no more messages, sends the answer, and ends the stream
// with a status.
class Joiner final : public MessageStreamOwner {
 public:
  explicit Joiner(MessageStream stream) : stream_(stream) {}
  void OnMessage(absl::string_view message) override { absl::StrAppend(&all_, "<", message, ">"); }
  void OnReadsEnd() override { stream_.Write(all_); }
  void OnWritten() override { stream_.End(absl::AbortedError("that was all")); }
  void OnClosed(const absl::Status& status) override {
    EXPECT_EQ(status, absl::OkStatus());
    delete this;
  }

 private:
  MessageStream stream_;
  std::string all_;
};

// Sends messages, and stores the answers.
class Client final : public MessageStreamOwner {
 public:
  Client(MessageStream stream, std::vector<std::string> messages) : stream_(stream), messages_(std::move(messages)) {}

  absl::Status Run() {
    stream_.Open(this);
    OnWritten();
    closed_.acquire();
    return status_;
  }

  const std::vector<std::string>& answers() const { return answers_; }

  void OnMessage(absl::string_view message) override { answers_.emplace_back(message); }
  void OnReadsEnd() override {}
  void OnWritten() override {
    if (sent_ == messages_.size()) return stream_.End(absl::OkStatus());
    stream_.Write(messages_[sent_++]);
  }
  void OnClosed(const absl::Status& status) override {
    status_ = status;
    closed_.release();
  }

 private:
  MessageStream stream_;
  const std::vector<std::string> messages_;
  size_t sent_ = 0;
  std::vector<std::string> answers_;
  absl::Status status_;
  std::binary_semaphore closed_{0};
};

TEST(MessageStreamsTest, MessagesGoBothWaysAndTheServersWordCloses) {
  const Endpoint endpoint = *ResolveEndpoint("127.0.0.1", 0);
  const auto server = MessageServer::Start(
      {.plugin = kPlugin, .endpoint = endpoint, .grace = absl::ZeroDuration(), .accept = [](auto method, auto stream) {
         if (method == "/join") return stream.Open(new Joiner(stream));
         stream.End(absl::UnimplementedError("there is no such call"));
       }});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = MessageChannel::Connect(kPlugin, *ResolveEndpoint("127.0.0.1", (*server)->port()), {});
  ASSERT_TRUE(channel.ok()) << channel.status();
  const auto call = [&](const std::string& method) {
    return (*channel)->Call(method, MessageChannel::Absent::kIsAwaited, absl::Seconds(60));
  };
  const std::string binary("\0\xff", 2);
  const std::string large(size_t{5} << 20, 'x');
  Client client(call("/join"), {"one", "", binary, large});
  EXPECT_EQ(client.Run(), absl::AbortedError("that was all"));
  EXPECT_THAT(client.answers(), ElementsAre(absl::StrCat("<one><><", binary, "><", large, ">")));
  Client other(call("/split"), {"one"});
  EXPECT_EQ(other.Run(), absl::UnimplementedError("there is no such call"));
}

// Authenticates every client that calls the method "/prove", and answers all clients.
class TrustingCall final : public ServedCall {
 public:
  TrustingCall(absl::string_view method, MessageStream stream)
      : ServedCall(std::move(stream)), proves_(method == "/prove") {}

 private:
  void Serve(absl::string_view) override {
    if (proves_) Authenticated();
    Answer(absl::StatusOr<std::string>("welcome"));
  }

  const bool proves_;
};

// The parameter is an address of this host.
class ClientsOfMessageServersTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!ListenAt(*ResolveEndpoint(GetParam(), 0)).ok()) GTEST_SKIP() << "this host has no " << GetParam();
  }

  void Serve(MessageServer::Callers callers) {
    server_ = *MessageServer::Start({.plugin = kPlugin,
                                     .endpoint = *ResolveEndpoint(GetParam(), 0),
                                     .grace = absl::ZeroDuration(),
                                     .callers = callers,
                                     .accept = [](absl::string_view method, MessageStream stream) {
                                       stream.Open(new TrustingCall(method, stream));
                                     }});
  }
  Endpoint endpoint() const { return *ResolveEndpoint(GetParam(), server_->port()); }

  // Returns a client that has called `method` and is still connected.
  std::unique_ptr<MessageChannel> Call(const std::string& method) const {
    std::unique_ptr<MessageChannel> channel = *MessageChannel::Connect(kPlugin, endpoint(), {});
    EXPECT_EQ(*CallOnce(channel->Call(method, MessageChannel::Absent::kIsAwaited, absl::Seconds(60)), ""), "welcome");
    return channel;
  }

  void AwaitUnauthenticated(int64_t count) const {
    while (server_->unauthenticated() != count) absl::SleepFor(absl::Milliseconds(1));
  }

  std::unique_ptr<MessageServer> server_;
};

INSTANTIATE_TEST_SUITE_P(Families, ClientsOfMessageServersTest, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& info) { return info.index == 0 ? "IPv4" : "IPv6"; });

TEST_P(ClientsOfMessageServersTest, AClientThatAuthenticatesIsFoundByItsAddress) {
  Serve(MessageServer::Callers::kAll);
  const auto other = Call("/other");
  EXPECT_EQ(server_->unauthenticated(), 1);
  const auto client = Call("/prove");
  AwaitUnauthenticated(1);
}

TEST_P(ClientsOfMessageServersTest, AClientThatAuthenticatesAndLeavesAtOnceIsNotCounted) {
  Serve(MessageServer::Callers::kAll);
  for (int i = 0; i < 20; ++i) Call("/prove");
  AwaitUnauthenticated(0);
}

TEST_P(ClientsOfMessageServersTest, ACallerOfAnotherUserIsRefusedWhereThisUsersAreServed) {
  if (!CanBeOtherUser()) GTEST_SKIP();
  // An HTTP/2 client begins with these bytes, which include a SETTINGS frame. The server answers with a SETTINGS frame.
  const std::string words("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  const auto has_answer = [&](const UniqueFd& client) {
    EXPECT_EQ(send(client.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
    char byte = 0;
    return recv(client.get(), &byte, 1, 0) == 1;
  };
  for (const auto callers : {MessageServer::Callers::kAll, MessageServer::Callers::kThisUser}) {
    Serve(callers);
    const bool serves_all = callers == MessageServer::Callers::kAll;
    EXPECT_EQ(has_answer(AsOtherUser([&] { return ConnectTo(endpoint()); })), serves_all);
    EXPECT_TRUE(has_answer(ConnectTo(endpoint())));
    Call("/other");
  }
}

TEST(MessageStreamsTest, PluginThatIsMissingIsNamedWithTheRemedy) {
  const absl::Status status = LoadHostsPlugin("/nowhere/libronda_hosts.so").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("plugin for several hosts"), HasSubstr("/nowhere/libronda_hosts.so"),
                    HasSubstr("RONDA_HOSTS_PLUGIN"), HasSubstr("libgrpc++1.51")));
}

TEST(MessageStreamsTest, PluginOfAnotherVersionIsRefused) {
  const std::string path = std::filesystem::absolute("tests/runtime/net/libnext_version.so");
  const absl::Status status = LoadHostsPlugin(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("is of version ", RONDA_HOSTS_PLUGIN_VERSION + 1, ", and version ",
                                     RONDA_HOSTS_PLUGIN_VERSION, " is needed")));
}

}  // namespace
}  // namespace ronda
