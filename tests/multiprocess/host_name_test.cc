// SPDX-License-Identifier: Apache-2.0

// Tests jobs on hosts whose names are not ASCII, or not even UTF-8, and whose network is down.
#include <sched.h>
#include <unistd.h>

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/multiprocess/launcher_harness.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

class HostNameTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(HostNameTest, AJobStarts) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a process a host name of its own";
  const auto& [name, backend] = GetParam();
  LauncherRun run({"-np", "2", "./tests/multiprocess/launcher_surroundings_test", "rank"},
                  {.environment = {absl::StrCat("RONDA_BACKEND=", backend), "RONDA_JOB_SECRET=x"}, .in_child = [] {
                     const std::string& own = std::get<0>(GetParam());
                     if (unshare(CLONE_NEWUTS) != 0 || sethostname(own.data(), own.size()) != 0) _exit(99);
                   }});
  EXPECT_EQ(run.Finish(), 0) << run.err();
  EXPECT_THAT(run.out(), HasSubstr("[1]<stdout>: the sum is 2\n"));
}

TEST(LoopbackTest, AJobWithoutTheLoopbackInterfaceIsToldAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a process a network of its own";
  LauncherRun run({"-np", "2", "./tests/multiprocess/launcher_surroundings_test", "rank"},
                  {.environment = {"RONDA_BACKEND=tcp", "RONDA_START_TIMEOUT=1h"}, .in_child = [] {
                     if (unshare(CLONE_NEWNET) != 0) _exit(99);
                   }});
  EXPECT_EQ(run.Finish(), 1) << run.err();
  EXPECT_THAT(run.LastLine(), HasSubstr("Network is unreachable: the loopback interface is down"));
}

INSTANTIATE_TEST_SUITE_P(Names, HostNameTest,
                         ::testing::Combine(::testing::Values("h\xc3\xb6st", "h\xff", "a b", "\"",
                                                              std::string(64, '\xe9')),
                                            ::testing::Values("shm", "tcp")));

}  // namespace
}  // namespace ronda
