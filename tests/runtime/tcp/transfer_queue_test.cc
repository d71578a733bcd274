#include "runtime/tcp/tcp_messages.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

// Takes up to `most` bytes out of a queue of messages to be sent.
std::string Take(TransferQueue& queue, size_t most, size_t vectors = 16) {
  std::vector<iovec> filled(vectors);
  filled.resize(queue.Fill(absl::MakeSpan(filled)));
  std::string stream;
  for (const iovec& vector : filled) stream.append(static_cast<const char*>(vector.iov_base), vector.iov_len);
  stream.resize(std::min(stream.size(), most));
  EXPECT_EQ(queue.Advance(stream.size()), absl::OkStatus());
  return stream;
}

// Gives bytes to a queue of messages to be received, as many as it wants; removes them from `stream`.
absl::Status Give(TransferQueue& queue, std::string& stream, size_t vectors = 16) {
  std::vector<iovec> filled(vectors);
  filled.resize(queue.Fill(absl::MakeSpan(filled)));
  size_t given = 0;
  for (const iovec& vector : filled) {
    const size_t bytes = std::min(vector.iov_len, stream.size() - given);
    std::memcpy(vector.iov_base, stream.data() + given, bytes);
    given += bytes;
  }
  stream.erase(0, given);
  return queue.Advance(given);
}

TEST(TransferQueueTest, MessageIsItsLengthAndItsContent) {
  TransferQueue queue;
  std::string text = "abc";
  queue.Add(text.data(), text.size());
  const std::string stream = Take(queue, 100);
  uint64_t length = 0;
  ASSERT_EQ(stream.size(), sizeof(length) + 3);
  std::memcpy(&length, stream.data(), sizeof(length));
  EXPECT_EQ(length, 3u);
  EXPECT_EQ(stream.substr(sizeof(length)), "abc");
  EXPECT_TRUE(queue.empty());
}

TEST(TransferQueueTest, MessageIsCompleteWithItsLastByte) {
  TransferQueue queue;
  std::string text = "abc";
  const TransferQueue::Number number = queue.Add(text.data(), text.size());
  Take(queue, sizeof(uint64_t) + 2);
  EXPECT_FALSE(queue.IsComplete(number));
  Take(queue, 1);
  EXPECT_TRUE(queue.IsComplete(number));
}

TEST(TransferQueueTest, EmptyMessageIsCompleteWithItsLength) {
  TransferQueue queue;
  const TransferQueue::Number number = queue.Add(nullptr, 0);
  Take(queue, sizeof(uint64_t) - 1);
  EXPECT_FALSE(queue.IsComplete(number));
  Take(queue, 1);
  EXPECT_TRUE(queue.IsComplete(number));
}

TEST(TransferQueueTest, MessageOfAnotherLengthIsAnErrorThatNamesBoth) {
  TransferQueue sends, receives;
  std::string text = "abc", room(5, '\0');
  sends.Add(text.data(), text.size());
  receives.Add(room.data(), room.size());
  std::string stream = Take(sends, 100);
  const absl::Status status = Give(receives, stream);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a message of 3 bytes has come where one of 5 is expected"));
}

TEST(TransferQueueTest, LongerMessageThanAskedForWritesNothingBeyond) {
  TransferQueue sends, receives;
  std::string text = "abcdef", room = "......";
  sends.Add(text.data(), text.size());
  receives.Add(room.data(), 2);
  std::string stream = Take(sends, 100);
  EXPECT_FALSE(Give(receives, stream).ok());
  EXPECT_EQ(room.substr(2), "....");
}

// A stream that is cut at random, on both sides, carries random messages, of which some are added late.
TEST(TransferQueueTest, AnyCutsOfTheStreamLeaveMessagesWhole) {
  const unsigned seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  constexpr size_t kMessages = 2000;
  std::deque<std::string> sent, received;
  TransferQueue sends, receives;
  std::string stream;
  while (sent.size() < kMessages || !sends.empty() || !receives.empty()) {
    if (sent.size() < kMessages && below(2) == 0) {
      sent.emplace_back(below(3) == 0 ? 0 : below(200), static_cast<char>('a' + below(26)));
      received.emplace_back(sent.back().size(), '\0');
      EXPECT_EQ(sends.Add(sent.back().data(), sent.back().size()), sent.size() - 1);
      EXPECT_EQ(receives.Add(received.back().data(), received.back().size()), received.size() - 1);
    }
    stream += Take(sends, below(300), 1 + below(16));
    std::string arrived = stream.substr(0, below(300));
    stream.erase(0, arrived.size());
    ASSERT_EQ(Give(receives, arrived, 1 + below(16)), absl::OkStatus());
    stream.insert(0, arrived);
  }
  EXPECT_EQ(received, sent);
  EXPECT_TRUE(stream.empty());
}

}  // namespace
}  // namespace ronda
