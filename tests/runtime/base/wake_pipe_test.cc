// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/wake_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <utility>

#include "gtest/gtest.h"

namespace ronda {
namespace {

bool IsReadable(const WakePipe& wake) {
  pollfd entry = {.fd = wake.reader(), .events = POLLIN};
  return poll(&entry, 1, 0) == 1 && entry.revents == POLLIN;
}

TEST(WakePipeTest, IsReadableFromWakeUntilClear) {
  WakePipe first = *WakePipe::Create();
  const WakePipe wake = std::move(first);
  EXPECT_FALSE(IsReadable(wake));
  for (int i = 0; i < 100'000; ++i) wake.Wake();
  EXPECT_TRUE(IsReadable(wake));
  wake.Clear();
  EXPECT_FALSE(IsReadable(wake));
  EXPECT_TRUE(wake.IsIntact());
}

TEST(WakePipeTest, FilesThatHaveGotItsNumbersAreLeftAlone) {
  int ends[2];
  {
    const WakePipe wake = *WakePipe::Create();
    close(wake.reader());
    close(wake.reader() + 1);
    ASSERT_EQ(pipe2(ends, O_NONBLOCK), 0);
    ASSERT_EQ(ends[0], wake.reader());
    EXPECT_FALSE(wake.IsIntact());
    wake.Wake();
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), -1) << "nothing has been written";
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    wake.Clear();
  }
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1) << "it is open, and nothing has been read";
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace ronda
