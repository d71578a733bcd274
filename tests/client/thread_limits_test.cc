// SPDX-License-Identifier: Apache-2.0

#include "client/thread_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "client/ronda.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ronda {
namespace {

using ::testing::ExitedWithCode;
using ::testing::HasSubstr;

TEST(ThreadLimitsTest, ThereCanBeThreads) { EXPECT_TRUE(CheckThreads().ok()); }

TEST(ThreadLimitsTest, AContainersProfileIsNamed) {
  EXPECT_THAT(DescribeThreadError(EPERM), HasSubstr("Operation not permitted; older profiles of containers"));
}

// Starts Ronda where no thread can be started, as in a container that has reached its process limit.
[[noreturn]] void InitWithoutRoomForAThread() {
  constexpr uid_t kNobody = 65534;
  const bool is_limited = geteuid() != 0 || setresuid(kNobody, kNobody, kNobody) == 0;  // root has no limit
  const rlimit one = {.rlim_cur = 1, .rlim_max = 1};
  setrlimit(RLIMIT_NPROC, &one);
  const ronda_status status = ronda_init(nullptr);
  std::fputs(ronda_last_error(), stderr);
  std::_Exit(is_limited && status == RONDA_ERROR_OUT_OF_MEMORY ? 0 : 1);
}

TEST(ThreadLimitsTest, WithoutRoomForAThreadTheStartNamesTheLimit) {
  EXPECT_EXIT(InitWithoutRoomForAThread(), ExitedWithCode(0),
              "cannot start a thread: Resource temporarily unavailable; the most processes and threads are 1 for this "
              "user");
}

}  // namespace
}  // namespace ronda
