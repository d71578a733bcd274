// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/output/output_sinks.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "gtest/gtest.h"
#include "runtime/base/unique_fd.h"

namespace ronda {
namespace {

class OutputQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reader_.Reset(ends[0]);
    writer_.Reset(ends[1]);
    signal(SIGPIPE, SIG_IGN);
  }

  std::string Read(size_t at_most) {
    std::string bytes(at_most, '\0');
    const ssize_t count = read(reader_.get(), bytes.data(), bytes.size());
    bytes.resize(count > 0 ? static_cast<size_t>(count) : 0);
    return bytes;
  }

  UniqueFd reader_;
  UniqueFd writer_;
};

TEST_F(OutputQueueTest, BytesArriveInOrder) {
  OutputQueue queue(writer_.get());
  queue.Append("one ");
  queue.Append("two");
  EXPECT_EQ(queue.pending(), "one two");
  EXPECT_TRUE(queue.Write().ok());
  EXPECT_EQ(queue.pending(), "");
  EXPECT_EQ(Read(100), "one two");
}

TEST_F(OutputQueueTest, SlowReaderDoesNotBlockAndLosesNothing) {
  OutputQueue queue(writer_.get());
  std::string all;
  for (int i = 0; i < 100000; ++i) all += std::to_string(i) + "\n";
  queue.Append(all);
  std::string received;
  while (true) {
    ASSERT_TRUE(queue.Write().ok());
    if (queue.pending().empty()) break;
    received += Read(10000);
  }
  writer_.Reset();
  for (std::string piece = Read(10000); !piece.empty(); piece = Read(10000)) received += piece;
  EXPECT_EQ(received, all);
}

TEST_F(OutputQueueTest, GoneReaderIsReportedOnce) {
  OutputQueue queue(writer_.get());
  reader_.Reset();
  queue.Append("x");
  EXPECT_EQ(queue.Write().code(), absl::StatusCode::kUnavailable);
  queue.Append("y");
  EXPECT_EQ(queue.pending(), "");
  EXPECT_TRUE(queue.Write().ok());
}

TEST_F(OutputQueueTest, FullDeviceIsReported) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  OutputQueue queue(full.get());
  queue.Append("x");
  EXPECT_EQ(queue.Write().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ronda
