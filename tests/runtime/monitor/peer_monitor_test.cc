// SPDX-License-Identifier: Apache-2.0

#include "runtime/monitor/peer_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/mutex.h"
#include "tests/testing/process_world.h"
#include "tests/testing/refuse_call.h"

namespace ronda {
namespace {

using testing::ForkedChild;

// A child process that does nothing until it is killed, with its description as a peer.
class Peer {
 public:
  Peer()
      : child_([](const ForkedChild::SayReady&) {
          pause();
          return std::string();
        }) {
    // In a job, the child would send this description to its peers.
    process_ = {.pid = child_.pid(), .start_time = StartTimeOf(child_.pid())};
  }

  const ProcessId& process() const { return process_; }
  void Kill() const { child_.Kill(SIGKILL); }

 private:
  static uint64_t StartTimeOf(pid_t pid) {
    for (uint64_t time = ThisProcess().start_time;; ++time) {
      if (IsAlive({.pid = pid, .start_time = time})) return time;
    }
  }

  ForkedChild child_;
  ProcessId process_;
};

// The system refuses the call only in the thread `reader`.
TEST(IsAliveTest, ARunningProcessIsAliveIfThereIsNoDescriptorToReadItsFile) {
  const Peer peer;
  std::thread reader([&] {
    testing::RefuseCall(SYS_openat, EMFILE);
    ASSERT_FALSE(ReadProcessStat(peer.process().pid).has_value());
    EXPECT_TRUE(IsAlive(peer.process()));
  });
  reader.join();
}

// Collects the ranks whose ends were reported.
class Ends {
 public:
  void Add(RankId rank) {
    MutexLock lock(&mu_);
    ranks_.push_back(rank);
    changed_.NotifyAll();
  }

  std::vector<RankId> WaitFor(size_t count) {
    MutexLock lock(&mu_);
    while (ranks_.size() < count) changed_.Wait(&mu_);
    return ranks_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<RankId> ranks_ ABSL_GUARDED_BY(mu_);
};

class PeerMonitorTest : public ::testing::TestWithParam<PeerMonitor::Method> {
 protected:
  std::unique_ptr<PeerMonitor> Watch(const std::vector<PeerMonitor::Watched>& peers) {
    auto monitor = PeerMonitor::Start(peers, [this](RankId rank) { ends_.Add(rank); }, {.method = GetParam()});
    EXPECT_TRUE(monitor.ok()) << monitor.status();
    return *std::move(monitor);
  }

  Ends ends_;
};

INSTANTIATE_TEST_SUITE_P(Methods, PeerMonitorTest,
                         ::testing::Values(PeerMonitor::Method::kPidFd, PeerMonitor::Method::kPolling),
                         [](const auto& info) {
                           return info.param == PeerMonitor::Method::kPidFd ? "PidFd" : "Polling";
                         });

TEST_P(PeerMonitorTest, KilledProcessesAreReportedOnceEach) {
  Peer first;
  Peer second;
  const auto monitor = Watch({{.rank = 1, .process = first.process()}, {.rank = 2, .process = second.process()}});
  second.Kill();
  EXPECT_EQ(ends_.WaitFor(1), std::vector<RankId>({2}));
  first.Kill();
  EXPECT_EQ(ends_.WaitFor(2), std::vector<RankId>({2, 1}));
}

TEST_P(PeerMonitorTest, ProcessThatEndedBeforeTheStartIsReported) {
  ProcessId gone;
  {
    const Peer peer;
    gone = peer.process();
  }
  const auto monitor = Watch({{.rank = 3, .process = gone}});
  EXPECT_EQ(ends_.WaitFor(1), std::vector<RankId>({3}));
}

TEST_P(PeerMonitorTest, AnotherProcessWithTheSamePidIsNotTakenForThePeer) {
  Peer peer;
  ProcessId earlier = peer.process();
  earlier.start_time -= 1;
  const auto monitor = Watch({{.rank = 4, .process = earlier}});
  EXPECT_EQ(ends_.WaitFor(1), std::vector<RankId>({4}));
}

// The system refuses the call only in the thread `watcher` and in the threads that it starts.
TEST_P(PeerMonitorTest, EndsAreReportedWhereTheSystemRefusesPoll) {
  const Peer peer;
  std::thread watcher([&] {
    testing::RefuseCall(SYS_poll, EPERM);
    const auto monitor = Watch({{.rank = 1, .process = peer.process()}});
    peer.Kill();
    EXPECT_EQ(ends_.WaitFor(1), std::vector<RankId>({1}));
  });
  watcher.join();
}

TEST_P(PeerMonitorTest, StopsWhileItsPeersLive) {
  Peer peer;
  Watch({{.rank = 5, .process = peer.process()}}).reset();
  EXPECT_TRUE(IsAlive(peer.process()));
}

// Closes descriptors like closefrom(), in a program that has peers.
TEST_P(PeerMonitorTest, AProgramThatClosesAllDescriptorsStillHearsOfEndsAndCanStop) {
  Peer first;
  Peer second;
  const PeerMonitor::Options options = {.method = GetParam()};
  ForkedChild program([&](const ForkedChild::SayReady&) {
    Ends ends;
    const int first_descriptor = open("/dev/null", O_RDWR);
    close(first_descriptor);
    auto monitor = PeerMonitor::Start(
        {{.rank = 1, .process = first.process()}, {.rank = 2, .process = second.process()}},
        [&](RankId rank) { ends.Add(rank); }, options);
    if (!monitor.ok()) return monitor.status().ToString();
    for (int fd = first_descriptor; fd < 1024; ++fd) close(fd);
    // The files that the loop opens get the descriptor numbers that the monitor had.
    std::vector<int> files;
    for (int i = 0; i < 8; ++i) files.push_back(open("/dev/null", O_RDWR));
    second.Kill();
    const bool is_right = ends.WaitFor(1) == std::vector<RankId>({2});
    monitor->reset();
    const bool are_open = std::ranges::all_of(files, [](int file) { return fcntl(file, F_GETFD) >= 0; });
    return absl::StrCat(is_right ? "right, " : "wrong, ", are_open ? "open" : "closed");
  });
  EXPECT_EQ(program.Result(), "right, open");
}

}  // namespace
}  // namespace ronda
