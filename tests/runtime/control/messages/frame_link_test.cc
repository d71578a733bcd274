// SPDX-License-Identifier: Apache-2.0

#include "runtime/control/messages/frame_link.h"

#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/control/tree/frame_stream.h"
#include "tests/testing/message_transports.h"

namespace ronda::testing {
namespace {

using ::testing::HasSubstr;

// Returns the next frame that arrives at `to`. Also polls `from`, because a long frame moves only while its sender
// polls.
absl::StatusOr<LinkFrame> Transfer(FrameLink& from, FrameLink& to) {
  for (;;) {
    const absl::StatusOr<std::optional<LinkFrame::Kind>> sent = from.PopSent();
    if (!sent.ok()) return sent.status();
    absl::StatusOr<std::optional<LinkFrame>> received = to.PopReceived();
    if (!received.ok()) return received.status();
    if (received->has_value()) return **std::move(received);
  }
}

TEST(FrameLinkTest, FramesOfAnyLengthArriveInOrder) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto ends = ConnectFakeMessages(2, seed);
    FrameLink left(*ends[0], 1);
    FrameLink right(*ends[1], 0);
    ASSERT_TRUE(right.Listen().ok());
    std::vector<std::string> contents;
    for (const size_t bytes : {0UL, 1UL, 247UL, 248UL, 249UL, 5000UL, 3UL, kControlPieceBytes}) {
      contents.emplace_back(bytes, static_cast<char>('a' + contents.size()));
      ASSERT_TRUE(left.Send({.content = contents.back()}).ok());
    }
    for (const std::string& content : contents) {
      const absl::StatusOr<LinkFrame> frame = Transfer(left, right);
      ASSERT_TRUE(frame.ok()) << frame.status();
      EXPECT_EQ(frame->kind, LinkFrame::Kind::kPiece);
      EXPECT_TRUE(frame->content == content) << content.size() << " bytes, seed " << seed;
    }
  }
}

TEST(FrameLinkTest, LinkIsIdleOnceTheEndHasCome) {
  const auto ends = ConnectFakeMessages(2, /*seed=*/1);
  FrameLink left(*ends[0], 1);
  FrameLink right(*ends[1], 0);
  ASSERT_TRUE(right.Listen().ok());
  ASSERT_TRUE(left.Send({.kind = LinkFrame::Kind::kOpen}).ok());
  ASSERT_TRUE(left.Send({.kind = LinkFrame::Kind::kEnd, .content = "why"}).ok());
  EXPECT_EQ(Transfer(left, right)->kind, LinkFrame::Kind::kOpen);
  EXPECT_TRUE(right.IsUnderWay());
  const absl::StatusOr<LinkFrame> end = Transfer(left, right);
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_EQ(end->kind, LinkFrame::Kind::kEnd);
  EXPECT_EQ(end->content, "why");
  while (left.IsUnderWay()) ASSERT_TRUE(left.PopSent().ok());
  EXPECT_FALSE(right.IsUnderWay());
}

struct BadHeader {
  uint32_t kind;
  uint32_t bytes;
};

// Sends `header`, with its 248 bytes of content, from one end of a link. Returns the result of receiving the header at
// the other end.
absl::Status ReceiveHeader(const BadHeader& header) {
  const auto ends = ConnectFakeMessages(2, /*seed=*/1);
  FrameLink right(*ends[1], 0);
  absl::Status status = right.Listen();
  char bytes[256] = {};
  std::memcpy(bytes, &header, sizeof(header));
  const auto request = ends[0]->Send(bytes, sizeof(bytes), 1);
  EXPECT_TRUE(request.ok());
  PointToPoint::Request sending = *request;
  for (bool is_sent = false; status.ok();) {
    if (!is_sent) is_sent = *ends[0]->Test({&sending, 1});
    const absl::StatusOr<std::optional<LinkFrame>> received = right.PopReceived();
    if (received.ok() && received->has_value()) break;
    status = received.status();
  }
  return status;
}

TEST(FrameLinkTest, HeaderWithUnknownKindOrExcessiveLengthIsRefused) {
  EXPECT_TRUE(ReceiveHeader({.kind = 2, .bytes = 5}).ok());
  for (const BadHeader& header : {BadHeader{0, 5}, BadHeader{4, 5}, BadHeader{2, uint32_t{kControlPieceBytes} + 1}}) {
    const absl::Status status = ReceiveHeader(header);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(status.message()), HasSubstr("a frame of kind"));
  }
}

}  // namespace
}  // namespace ronda::testing
