// SPDX-License-Identifier: Apache-2.0

#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/control/shm/shm_control_plane.h"

namespace ronda {
namespace {

class FrameRingTest : public ::testing::Test {
 protected:
  // A ring as in a job's shared memory: a header and the bytes of the ring, all of them zero.
  struct Memory {
    ShmRingHeader header;
    char data[kShmRingBytes];
  };

  const std::unique_ptr<Memory> memory_ = std::make_unique<Memory>();
  FrameWriter writer_{&memory_->header};
  FrameReader reader_{&memory_->header};
};

TEST_F(FrameRingTest, EmptyRingHasNoMessages) {
  EXPECT_TRUE(writer_.IsFlushed());
  EXPECT_TRUE(reader_.Read()->messages.empty());
}

TEST_F(FrameRingTest, MessagesArriveWholeAndInOrder) {
  for (const char* text : {"one", "", "three"}) EXPECT_EQ(writer_.Queue(text), absl::OkStatus());
  ASSERT_TRUE(writer_.Flush().ok());
  EXPECT_TRUE(writer_.IsFlushed());
  EXPECT_EQ(reader_.Read()->messages, std::vector<std::string>({"one", "", "three"}));
}

TEST_F(FrameRingTest, MessageLongerThanTheRingStreamsThroughIt) {
  const std::string text(5 * kShmRingBytes + 17, 'x');
  ASSERT_EQ(writer_.Queue(text), absl::OkStatus());
  std::vector<std::string> messages;
  int rounds = 0;
  for (; messages.empty(); ++rounds) {
    ASSERT_TRUE(writer_.Flush().ok());
    auto read = reader_.Read();
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->writer_waits, read->messages.empty()) << "in round " << rounds;
    messages = read->messages;
  }
  EXPECT_EQ(rounds, 6);
  EXPECT_EQ(messages, std::vector<std::string>({text}));
}

TEST_F(FrameRingTest, MessageOfImpossibleLengthIsRefused) {
  const std::string text(kMaxFrameBytes + 1, 'x');
  EXPECT_EQ(writer_.Queue(text).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FrameRingTest, DamagedCountersAreNoticed) {
  memory_->header.written.store(kShmRingBytes + 1);
  EXPECT_EQ(reader_.Read().status().code(), absl::StatusCode::kInternal);
  memory_->header.read.store(1);
  ASSERT_EQ(writer_.Queue("x"), absl::OkStatus());
  EXPECT_EQ(writer_.Flush().status().code(), absl::StatusCode::kInternal);
}

TEST_F(FrameRingTest, DamagedLengthIsNoticed) {
  ASSERT_EQ(writer_.Queue("x"), absl::OkStatus());
  ASSERT_TRUE(writer_.Flush().ok());
  memory_->data[3] = '\x7f';
  EXPECT_EQ(reader_.Read().status().code(), absl::StatusCode::kInternal);
}

TEST_F(FrameRingTest, RandomMessagesBetweenTwoThreads) {
  const uint64_t seed = std::random_device()();
  std::cout << "seed " << seed << "\n";
  constexpr int kMessages = 100;
  const auto length_of = [](std::mt19937_64& random) { return random() % (uint64_t{1} << (random() % 18)); };
  std::thread writing([&] {
    std::mt19937_64 random(seed);
    for (int i = 0; i < kMessages || !writer_.IsFlushed(); ++i) {
      if (i < kMessages) {
        ASSERT_EQ(writer_.Queue(std::string(length_of(random), static_cast<char>(i))), absl::OkStatus());
      }
      ASSERT_TRUE(writer_.Flush().ok());
      std::this_thread::yield();
    }
  });
  std::mt19937_64 random(seed);
  for (int i = 0; i < kMessages;) {
    auto read = reader_.Read();
    ASSERT_TRUE(read.ok());
    for (const std::string& message : read->messages) {
      ASSERT_EQ(message, std::string(length_of(random), static_cast<char>(i))) << "message " << i;
      ++i;
    }
    std::this_thread::yield();
  }
  writing.join();
}

}  // namespace
}  // namespace ronda
