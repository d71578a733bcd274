// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/supervise/child_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>

#include "programs/rondarun/supervise/guard.h"
#include "programs/rondarun/supervise/poll_set.h"

namespace ronda {
namespace {

class SystemProcessesTest : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> Sleep() {
    getrlimit(RLIMIT_NOFILE, &context_.file_limit);
    context_.signals = &signals_;
    context_.guard = guard_.get();
    return *SystemProcesses(context_).Start({.command = {"sleep", "1000"}});
  }

  static ChildProcess::End Kill(ChildProcess* process) {
    process->SignalGroup(SIGKILL);
    pollfd end = {.fd = process->pidfd(), .events = POLLIN, .revents = 0};
    poll(&end, 1, -1);
    return process->Collect();
  }

 private:
  SignalInbox signals_ = *SignalInbox::Create({});
  const std::unique_ptr<Guard> guard_ = *Guard::Start("");
  SystemProcesses::Context context_;
};

TEST_F(SystemProcessesTest, ReadingFromAProcessThatPrintsNothingDoesNotBlock) {
  const std::unique_ptr<ChildProcess> process = Sleep();
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    char byte = 0;
    EXPECT_EQ(read(process->output(stream), &byte, 1), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  EXPECT_EQ(Kill(process.get()).signal, SIGKILL);
}

TEST_F(SystemProcessesTest, StopsAndContinuationsAreNewsOnce) {
  const std::unique_ptr<ChildProcess> process = Sleep();
  EXPECT_EQ(process->NextMotion(), std::nullopt);
  for (const int signo : {SIGSTOP, SIGCONT}) {
    process->SignalAlone(signo);
    std::optional<int> motion;
    while (!motion.has_value()) motion = process->NextMotion();
    EXPECT_EQ(motion, signo);
    EXPECT_EQ(process->NextMotion(), std::nullopt);
  }
  EXPECT_EQ(Kill(process.get()).signal, SIGKILL);
}

}  // namespace
}  // namespace ronda
