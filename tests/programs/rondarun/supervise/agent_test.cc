// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/agent.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ronda {
namespace {

using Kind = AgentMessage::Kind;
using Source = AgentMessageReader::Stream;

const std::vector<AgentMessage>& Messages() {
  static const auto& messages = *new std::vector<AgentMessage>{
      {.kind = Kind::kGo, .numbers = {}, .texts = {}},
      {.kind = Kind::kOutput, .numbers = {3, 1}, .texts = {std::string("a\0b\n", 4)}},
      {.kind = Kind::kRankEnd, .numbers = {-1, INT64_MAX, INT64_MIN}, .texts = {"", "x"}},
      {.kind = Kind::kFailure, .numbers = {127}, .texts = {std::string(100000, 'y')}}};
  return messages;
}

std::string EncodedMessages() {
  std::string bytes;
  for (const AgentMessage& message : Messages()) bytes += Encode(message);
  return bytes;
}

std::vector<AgentMessage> ReadBack(AgentMessageReader* reader, const std::string& bytes, size_t piece) {
  std::vector<AgentMessage> messages;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::Status status =
        reader->Feed(bytes.substr(at, piece), [&](AgentMessage message) { messages.push_back(std::move(message)); });
    EXPECT_TRUE(status.ok()) << status;
  }
  return messages;
}

TEST(AgentMessageTest, MessagesComeBackHoweverTheStreamIsCut) {
  for (const size_t piece : {1, 3, 8, 1000, 1000000}) {
    AgentMessageReader reader(Source::kMessages);
    EXPECT_EQ(ReadBack(&reader, EncodedMessages(), piece), Messages()) << piece;
  }
}

TEST(AgentMessageTest, OutputBeforeTheGreetingIsNoMessage) {
  for (const size_t piece : {1, 5, 1000000}) {
    AgentMessageReader reader(Source::kAgentsOutput);
    const std::string text = "Welcome to host b!\nronda-agen";
    EXPECT_TRUE(ReadBack(&reader, text, piece).empty());
    EXPECT_EQ(reader.preface(), text);
    EXPECT_EQ(ReadBack(&reader, std::string(kAgentGreeting) + EncodedMessages(), piece), Messages()) << piece;
    EXPECT_EQ(reader.preface(), "");
  }
}

TEST(AgentMessageTest, MissingNumbersAndTextsAreZeroAndEmpty) {
  const AgentMessage message = {.kind = Kind::kOutput, .numbers = {7}, .texts = {"a"}};
  EXPECT_EQ(message.number(0), 7);
  EXPECT_EQ(message.number(1), 0);
  EXPECT_EQ(message.text(0), "a");
  EXPECT_EQ(message.text(1), "");
}

TEST(AgentMessageTest, BytesThatAreNoMessageAreRefused) {
  const auto refuses = [](const std::string& bytes) {
    AgentMessageReader reader(Source::kMessages);
    return !reader.Feed(bytes, [](const AgentMessage&) {}).ok();
  };
  const std::string good = Encode(Messages()[1]);
  EXPECT_TRUE(refuses("Welcome to host b!"));  // its length would be beyond all bounds
  std::string kind = good;
  kind[8] = '\x7f';
  EXPECT_TRUE(refuses(kind));
  std::string count = good;
  count[16] = '\x7f';
  EXPECT_TRUE(refuses(count));
  EXPECT_TRUE(refuses(std::string(8, '\0')));
}

TEST(AgentMessageTest, RandomBytesDoNoHarm) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = EncodedMessages().substr(0, 300);
    for (int i = 0; i < 5; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    AgentMessageReader reader(Source::kMessages);
    size_t messages = 0;
    (void)reader.Feed(bytes, [&](const AgentMessage& message) { messages += message.numbers.size() < 1000 ? 1 : 0; });
    EXPECT_LE(messages, 3u);
  }
}

}  // namespace
}  // namespace ronda
