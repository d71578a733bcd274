// SPDX-License-Identifier: Apache-2.0

// Tests a rank's links over sockets, whose other ends the test holds.
#include "runtime/control/messages/node_links.h"

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/tcp/tcp_messages.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Kind = LinkFrame::Kind;

constexpr char kJobId[] = "job";

// A neighbour of the tested rank, with only a link and no control plane.
class Neighbour {
 public:
  Neighbour(RankId self, RankId rank, UniqueFd socket)
      : messages_(self, SocketsWith(rank, std::move(socket))), link_(messages_, rank) {
    EXPECT_EQ(link_.Listen(), absl::OkStatus());
  }

  static std::vector<UniqueFd> SocketsWith(RankId rank, UniqueFd socket) {
    std::vector<UniqueFd> sockets(3);
    sockets[static_cast<size_t>(rank)] = std::move(socket);
    return sockets;
  }

  void Open() { EXPECT_EQ(link_.Send({.kind = Kind::kOpen, .content = kJobId}), absl::OkStatus()); }

  // Returns the next frame that has arrived from the tested rank.
  std::optional<LinkFrame> Next() {
    messages_.Progress();
    return *link_.PopReceived();
  }

 private:
  TcpMessages messages_;
  FrameLink link_;
};

// The tested rank `self` of a job of three, and its neighbours in the tree.
class NodeLinksTest : public ::testing::Test {
 protected:
  void Make(RankId self, int fan_out, const std::vector<RankId>& neighbours) {
    std::vector<UniqueFd> sockets(3);
    for (const RankId rank : neighbours) {
      int ends[2];
      ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
      sockets[static_cast<size_t>(rank)].Reset(ends[0]);
      neighbours_[rank] = std::make_unique<Neighbour>(rank, self, UniqueFd(ends[1]));
    }
    const ControlNode::Options node = {
        .rank = self, .peers = {{.rank = 0}, {.rank = 1}, {.rank = 2}}, .tree = {.size = 3, .fan_out = fan_out}};
    links_ = std::make_unique<NodeLinks>(NodeLinks::Options{.node = node, .job_id = kJobId, .absent = {}},
                                         std::make_unique<TcpMessages>(self, std::move(sockets)));
  }

  std::unique_ptr<Neighbour> neighbours_[3];
  std::unique_ptr<NodeLinks> links_;
};

// To find the last frames of a broken socket, TcpMessages reads all sockets. The rank must then receive the frames that
// TcpMessages has read, although their sockets are no longer ready.
TEST_F(NodeLinksTest, FramesThatAreReadWhenALinkBreaksAreReceived) {
  Make(0, 2, {1, 2});
  neighbours_[1]->Open();
  neighbours_[2].reset();
  links_->Open();
  links_->Flush();
  EXPECT_TRUE(links_->node().IsAttached(1));
}

TEST_F(NodeLinksTest, FailureOfALinkThatBreaksInFlushReachesTheLinksBeforeIt) {
  Make(0, 2, {1, 2});
  links_->Open();
  for (const RankId rank : {1, 2}) neighbours_[rank]->Open();
  while (!links_->node().started()) links_->Move();
  links_->Flush();
  neighbours_[2].reset();
  links_->node().Broadcast("the last");
  links_->Flush();
  std::string pieces;
  while (const std::optional<LinkFrame> frame = neighbours_[1]->Next()) pieces += frame->content;
  EXPECT_THAT(pieces, HasSubstr("the last"));
  EXPECT_THAT(pieces, HasSubstr("is gone"));
}

// A child may take long to connect, because it waits for another rank. So the parent may be gone when the child opens
// the link.
TEST_F(NodeLinksTest, NeighbourThatOpensTheLinkAfterTheRankHasGoneFindsTheFailure) {
  Make(0, 2, {1, 2});
  links_->Open();
  neighbours_[2]->Open();
  links_->Move();
  neighbours_[2].reset();
  links_->Move();
  links_->Close();
  links_->Flush();
  links_.reset();
  EXPECT_EQ(neighbours_[1]->Next()->kind, Kind::kOpen);
  const std::optional<LinkFrame> failure = neighbours_[1]->Next();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, Kind::kPiece);
  EXPECT_THAT(failure->content, HasSubstr("is gone"));
}

TEST_F(NodeLinksTest, FailureBeforeTheParentHasOpenedTheLinkComesBeforeItsEnd) {
  Make(1, 2, {0});
  links_->Open();
  links_->node().Propose(absl::InternalError("no disk"));
  links_->Close();
  links_->Flush();
  EXPECT_EQ(neighbours_[0]->Next()->kind, Kind::kOpen);
  neighbours_[0]->Open();
  links_->Move();
  links_->Flush();
  const std::optional<LinkFrame> failure = neighbours_[0]->Next();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->kind, Kind::kPiece);
  EXPECT_THAT(failure->content, HasSubstr("no disk"));
  EXPECT_EQ(neighbours_[0]->Next()->kind, Kind::kEnd);
}

}  // namespace
}  // namespace ronda
