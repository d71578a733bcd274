// SPDX-License-Identifier: Apache-2.0

// Tests ranks that are processes, one of which is killed or stopped.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "programs/options/local_host.h"
#include "runtime/base/logging.h"
#include "runtime/net/endpoint.h"
#include "tests/runtime/control/messages/tcp_ranks.h"
#include "tests/testing/process_world.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

// Seven ranks in a tree, with two children per rank. Each rank is a process, which returns the failure that ended its
// job.
class TcpProcessTest : public ::testing::Test {
 protected:
  static constexpr int kSize = 7;

  void Start(absl::Duration heartbeat_timeout) {
    ports_ = FindFreePorts(kSize);
    for (RankId rank = 0; rank < kSize; ++rank) {
      children_.push_back(std::make_unique<ForkedChild>([this, rank, heartbeat_timeout](const auto& say_ready) {
        return RunRank(rank, heartbeat_timeout, say_ready);
      }));
    }
    for (const auto& child : children_) child->WaitUntilReady();
  }

  std::string RunRank(RankId rank, absl::Duration heartbeat_timeout, const ForkedChild::SayReady& say_ready) const {
    const ControlTree tree = {.size = kSize, .fan_out = 2};
    TcpRank self = {.control = {.rank = rank,
                                .job_id = "job",
                                .heartbeat = absl::Milliseconds(50),
                                .heartbeat_timeout = heartbeat_timeout,
                                .fan_out = 2},
                    .mesh = {.job = {.job_id = "job", .secret = "open sesame"}, .rank = rank}};
    // All pids are made up, because a rank cannot know the pids of ranks that start later.
    for (RankId peer = 0; peer < kSize; ++peer) {
      self.control.peers.push_back({.rank = peer, .host = absl::StrCat("host", peer), .pid = 1000 + peer});
      self.mesh.endpoints.push_back(*ResolveEndpoint("127.0.0.1", ports_[peer]));
    }
    self.mesh.peers = self.control.peers;
    if (!tree.Children(rank).empty()) self.listener = TcpListener::Start(self.mesh.endpoints[rank]).value();
    const auto control = ConnectRank(std::move(self));
    say_ready();
    if (!control.ok()) return control.status().ToString();
    return AwaitFailure(**control).ToString();
  }

  void ExpectAllBut(RankId gone, const std::string& text) {
    for (RankId rank = 0; rank < kSize; ++rank) {
      if (rank == gone) continue;
      EXPECT_THAT(children_[rank]->Result(), HasSubstr(text)) << "rank " << rank;
    }
  }

  std::vector<int> ports_;
  std::vector<std::unique_ptr<ForkedChild>> children_;
};

TEST_F(TcpProcessTest, DeathOfALeafIsTheSameFailureEverywhere) {
  Start(absl::Seconds(60));
  children_[5]->Kill(SIGKILL);
  ExpectAllBut(5, "rank 5 (host host5, pid 1005) is gone: its connection closed");
}

TEST_F(TcpProcessTest, DeathOfARankInBetweenIsTheSameFailureEverywhere) {
  Start(absl::Seconds(60));
  children_[1]->Kill(SIGKILL);
  ExpectAllBut(1, "rank 1 (host host1, pid 1001) is gone: its connection closed");
}

TEST_F(TcpProcessTest, DeathOfRankZeroIsTheSameFailureEverywhere) {
  Start(absl::Seconds(60));
  children_[0]->Kill(SIGKILL);
  ExpectAllBut(0, "rank 0 (host host0, pid 1000) is gone: its connection closed");
}

TEST_F(TcpProcessTest, StoppedRankIsLostAfterTheHeartbeatTimeout) {
  Start(absl::Seconds(1));
  children_[5]->Kill(SIGSTOP);
  ExpectAllBut(5, "rank 5 (host host5, pid 1005) gave no sign of life for 1s");
}

}  // namespace
}  // namespace ronda::testing
