// Both ends of streams as threads of one process, and the search for the plugin.
#include "runtime/net/message_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <semaphore>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kPlugin[] = "runtime/net/libronda_hosts.so";

// Answers with all messages in one, once the other end has no more, and ends with a word.
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

// Sends messages, and takes the answer.
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
  Client stranger(call("/split"), {"one"});
  EXPECT_EQ(stranger.Run(), absl::UnimplementedError("there is no such call"));
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
  EXPECT_THAT(std::string(status.message()), HasSubstr("is of version 3, and version 2 is needed"));
}

}  // namespace
}  // namespace ronda
