// SPDX-License-Identifier: Apache-2.0

#include "runtime/base/poll.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>

#include "gtest/gtest.h"
#include "runtime/base/wake_pipe.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

TEST(PollDescriptorsTest, TellsWhichDescriptorIsReady) {
  const absl::StatusOr<WakePipe> woken = WakePipe::Create();
  const absl::StatusOr<WakePipe> quiet = WakePipe::Create();
  ASSERT_TRUE(woken.ok() && quiet.ok());
  woken->Wake();
  pollfd descriptors[] = {{.fd = quiet->reader(), .events = POLLIN}, {.fd = woken->reader(), .events = POLLIN}};
  EXPECT_EQ(PollDescriptors(absl::MakeSpan(descriptors), absl::InfiniteDuration()).value_or(-1), 1);
  EXPECT_EQ(descriptors[0].revents, 0);
  EXPECT_EQ(descriptors[1].revents, POLLIN);
}

TEST(PollDescriptorsTest, TimeEndsTheWait) {
  const absl::StatusOr<WakePipe> quiet = WakePipe::Create();
  ASSERT_TRUE(quiet.ok());
  pollfd descriptor = {.fd = quiet->reader(), .events = POLLIN};
  EXPECT_EQ(PollDescriptors({&descriptor, 1}, absl::Milliseconds(1)).value_or(-1), 0);
  EXPECT_EQ(PollDescriptors({&descriptor, 1}, -absl::InfiniteDuration()).value_or(-1), 0);
}

TEST(PollDescriptorsTest, RefusedCallIsAnErrorThatNamesIt) {
  EXPECT_EXIT(
      {
        testing::RefuseCall(SYS_ppoll, ENOSYS);
        const absl::Status status = PollDescriptors({}, absl::InfiniteDuration()).status();
        std::cerr << status;
        _exit(absl::IsFailedPrecondition(status) ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "the system refuses ppoll \\(Function not implemented\\)");
}

}  // namespace
}  // namespace ronda
