// SPDX-License-Identifier: Apache-2.0

#include "runtime/elastic/membership_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "absl/status/status.h"
#include "runtime/base/unique_fd.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;

TEST(MembershipMessageTest, MemberMessagesSurviveTheWay) {
  for (const MemberMessage& message :
       {MemberMessage(JoinRequest{.last_epoch = 3, .step = 41, .reason = "rank 2 (host a, pid 7) has died"}),
        MemberMessage(JoinRequest{}), MemberMessage(EpochMet{.epoch = 999'999'999}), MemberMessage(LeaveRequest{})}) {
    const auto decoded = DecodeMemberMessage(Encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, message) << Encode(message);
  }
}

TEST(MembershipMessageTest, LauncherMessagesSurviveTheWay) {
  const Topology topology = {.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2};
  for (const LauncherMessage& message :
       {LauncherMessage(EpochPlace{.epoch = 7, .topology = topology}),
        LauncherMessage(
            EpochPlace{.epoch = 7, .topology = topology, .master_address = "fe80::1%eth0", .master_port = 29500}),
        LauncherMessage(ChangeNotice{}), LauncherMessage(EndNotice{.reason = "fewer than 2 members are left"})}) {
    const auto decoded = DecodeLauncherMessage(Encode(message));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(*decoded, message) << Encode(message);
  }
}

TEST(MembershipMessageTest, ReasonIsOneLineThatFits) {
  const std::string reason = "first\nsecond" + std::string(10'000, 'x');
  const std::string text = Encode(MemberMessage(JoinRequest{.reason = reason}));
  EXPECT_LE(text.size(), kMaxMembershipMessage);
  EXPECT_THAT(text, HasSubstr("first second"));
}

TEST(MembershipMessageTest, NonsenseIsNamed) {
  for (const char* text : {"", "joi", "join", "join 1", "join -2 0 ", "join 1 x ", "met", "met -1", "met 1 2",
                           "leave 1", "met 1000000000", "met 99999999999999999999"}) {
    const auto decoded = DecodeMemberMessage(text);
    EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(decoded.status().message(), HasSubstr(text));
  }
  EXPECT_EQ(DecodeMemberMessage("join 1 1 " + std::string(kMaxMembershipMessage, 'x')).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (const char* text : {"", "place", "place 1 0 0 0 1 0 1 0 ", "place 1 2 2 0 1 0 1 0 ", "place 1 0 2 0 1 0 1 7 ",
                           "place 1 0 2 0 1 0 1 0 host", "place 1 0 2 0 1 0 1 70000 host", "change 1", "join 1 1 "}) {
    EXPECT_EQ(DecodeLauncherMessage(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(MembershipMessageTest, PacketsTravelWholeAndNoneIsEmpty) {
  std::array<int, 2> pair;
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.data()), 0);
  const UniqueFd member(pair[0]);
  UniqueFd launcher(pair[1]);
  EXPECT_EQ(ReceiveMembershipMessage(member.get()).value(), "");
  ASSERT_TRUE(SendMembershipMessage(launcher.get(), "change").ok());
  ASSERT_TRUE(SendMembershipMessage(launcher.get(), "end enough").ok());
  EXPECT_EQ(ReceiveMembershipMessage(member.get()).value(), "change");
  EXPECT_EQ(ReceiveMembershipMessage(member.get()).value(), "end enough");
  ASSERT_TRUE(SendMembershipMessage(launcher.get(), std::string(kMaxMembershipMessage + 1, 'x')).ok());
  EXPECT_EQ(ReceiveMembershipMessage(member.get()).status().code(), absl::StatusCode::kInvalidArgument);
  launcher.Reset();
  EXPECT_EQ(ReceiveMembershipMessage(member.get()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(SendMembershipMessage(member.get(), "leave").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace ronda
