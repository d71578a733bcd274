// SPDX-License-Identifier: Apache-2.0

#include "runtime/elastic/member_channel.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <time.h>

#include <array>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using Request = MemberChannel::Request;

constexpr absl::Duration kTimeout = absl::Minutes(1);

EpochPlace PlaceIn(int64_t epoch) { return {.epoch = epoch, .topology = {.rank = 1, .size = 2}}; }

class MemberChannelTest : public ::testing::Test {
 protected:
  MemberChannelTest() {
    std::array<int, 2> pair = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.data()), 0);
    member_.emplace(UniqueFd(pair[0]));
    launcher_.Reset(pair[1]);
  }

  void Say(const LauncherMessage& message) const {
    EXPECT_TRUE(SendMembershipMessage(launcher_.get(), Encode(message)).ok());
  }
  std::string Hear() const { return ReceiveMembershipMessage(launcher_.get()).value(); }

  std::optional<MemberChannel> member_;
  UniqueFd launcher_;
};

TEST_F(MemberChannelTest, AMemberThatJoinsWaitsForItsPlace) {
  std::thread launcher([this] {
    while (Hear().empty()) std::this_thread::yield();
    Say(PlaceIn(4));
  });
  const absl::StatusOr<EpochPlace> place =
      member_->Join({.last_epoch = 3, .step = 7, .reason = "a rank died"}, kTimeout);
  launcher.join();
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(*place, PlaceIn(4));
}

TEST_F(MemberChannelTest, LauncherReceivesTheMembersMessages) {
  Say(PlaceIn(4));
  EXPECT_TRUE(member_->Join({.last_epoch = 3, .step = 7, .reason = "a rank died"}, kTimeout).ok());
  EXPECT_EQ(Hear(), "join 3 7 a rank died");
  EXPECT_TRUE(member_->TellMet(4).ok());
  EXPECT_EQ(Hear(), "met 4");
  EXPECT_TRUE(member_->Leave().ok());
  EXPECT_TRUE(member_->Leave().ok());
  EXPECT_EQ(Hear(), "leave");
  EXPECT_EQ(Hear(), "") << "it leaves once";
}

TEST_F(MemberChannelTest, AnOldPlaceAndAnOldRequestForAChangeAreOver) {
  Say(PlaceIn(3));
  Say(ChangeNotice{});
  Say(PlaceIn(4));
  EXPECT_EQ(member_->Join({.last_epoch = 3}, kTimeout).value().epoch, 4);
  EXPECT_EQ(member_->Look().value(), Request::kNone);
}

TEST_F(MemberChannelTest, AChangeIsSeenWithoutWaitingAndUntilTheNextPlace) {
  EXPECT_EQ(member_->Look().value(), Request::kNone);
  Say(ChangeNotice{});
  EXPECT_EQ(member_->Look().value(), Request::kChange);
  EXPECT_EQ(member_->Look().value(), Request::kChange);
  Say(PlaceIn(1));
  EXPECT_TRUE(member_->Join({}, kTimeout).ok());
  EXPECT_EQ(member_->Look().value(), Request::kNone);
}

TEST_F(MemberChannelTest, TheEndIsForGoodAndSaysItsReason) {
  Say(EndNotice{.reason = "fewer than 2 members are left"});
  for (int i = 0; i < 2; ++i) {
    const absl::Status status = member_->Join({}, kTimeout).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("fewer than 2 members are left"));
  }
}

TEST_F(MemberChannelTest, AnEndBetweenStepsIsSeenAndTheNextJoinSaysWhy) {
  Say(ChangeNotice{});
  Say(EndNotice{.reason = "the job is over"});
  EXPECT_EQ(member_->Look().value(), Request::kChange);
  EXPECT_EQ(member_->Look().value(), Request::kEnd);
  EXPECT_EQ(member_->Look().value(), Request::kEnd);
  EXPECT_TRUE(member_->Leave().ok());
  EXPECT_EQ(Hear(), "") << "the launcher knows";
  EXPECT_THAT(member_->Join({}, kTimeout).status().message(), HasSubstr("the job is over"));
}

TEST_F(MemberChannelTest, ALauncherThatIsGoneIsNamedWhateverTheMemberDoes) {
  launcher_.Reset();
  for (const absl::Status& status :
       {member_->Look().status(), member_->TellMet(1), member_->Leave(), member_->Join({}, kTimeout).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(status.message(), HasSubstr("launcher is gone"));
  }
}

TEST_F(MemberChannelTest, ALauncherThatEndsWhileAMemberWaitsEndsTheWait) {
  std::thread launcher([this] {
    while (Hear().empty()) std::this_thread::yield();
    launcher_.Reset();
  });
  EXPECT_EQ(member_->Join({}, kTimeout).status().code(), absl::StatusCode::kDataLoss);
  launcher.join();
}

TEST_F(MemberChannelTest, AWaitEndsAtItsDeadline) {
  const absl::Status status = member_->Join({}, absl::Milliseconds(20)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("20ms"));
  Say(PlaceIn(1));
  EXPECT_TRUE(member_->Join({}, kTimeout).ok()) << "and it may ask again";
}

absl::Duration CpuTimeOfThisThread() {
  timespec time = {};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return absl::DurationFromTimespec(time);
}

TEST_F(MemberChannelTest, AWaitWithoutADeadlineSleeps) {
  std::thread launcher([this] {
    absl::SleepFor(absl::Milliseconds(300));
    Say(PlaceIn(4));
  });
  const absl::Duration before = CpuTimeOfThisThread();
  EXPECT_TRUE(member_->Join({}, absl::InfiniteDuration()).ok());
  EXPECT_LT(CpuTimeOfThisThread() - before, absl::Milliseconds(30));
  launcher.join();
}

TEST_F(MemberChannelTest, NonsenseIsAnErrorThatNamesIt) {
  EXPECT_TRUE(SendMembershipMessage(launcher_.get(), "nonsense").ok());
  EXPECT_THAT(member_->Join({}, kTimeout).status().message(), HasSubstr("nonsense"));
}

absl::StatusOr<std::unique_ptr<MemberChannel>> OpenFrom(const std::string& value) {
  return MemberChannel::Open([value](const char* name) -> std::optional<std::string> {
    if (name != kMembershipVariable.view()) return std::nullopt;
    return value;
  });
}

TEST(MemberChannelOpenTest, WithoutTheVariableThereIsNone) {
  const auto channel = MemberChannel::Open([](const char*) { return std::nullopt; });
  ASSERT_TRUE(channel.ok());
  EXPECT_EQ(*channel, nullptr);
}

TEST(MemberChannelOpenTest, TheDescriptorIsNotInherited) {
  std::array<int, 2> pair = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair.data()), 0);
  const UniqueFd launcher(pair[1]);
  const auto channel = OpenFrom(absl::StrCat(pair[0]));
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(fcntl(pair[0], F_GETFD), FD_CLOEXEC);
}

TEST(MemberChannelOpenTest, DescriptorThatIsNoSocketOfALauncherIsRefused) {
  const UniqueFd file(open("/dev/null", O_RDONLY | O_CLOEXEC));
  for (const std::string& value :
       {absl::StrCat(file.get()), std::string("-1"), std::string("x"), std::string("100000")}) {
    const absl::Status status = OpenFrom(value).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("RONDA_MEMBERSHIP_FD=\"", value, "\"")));
  }
}

}  // namespace
}  // namespace ronda
