// SPDX-License-Identifier: Apache-2.0

// Tests the membership of jobs when hosts join, leave, or are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "programs/rondarun/membership/membership.h"
#include "tests/programs/rondarun/membership/membership_job.h"

namespace ronda {
namespace {

using ::testing::HasSubstr;
using testing::Job;
using ::testing::StartsWith;

using Options = JobMembership::Options;

// Members 0 and 1 are on alpha, and members 2 and 3 on beta. All members are in epoch 0.
const Options kTwoHosts = {.hosts = {{.name = "alpha", .slots = 2}, {.name = "beta", .slots = 2}},
                           .initial_members = 4,
                           .min_members = 2,
                           .max_members = 4};

Job OnTwoHosts(const Options& options = kTwoHosts) {
  Job job(options);
  job.membership().SetMeetingPoint("alpha", {.address = "10.0.0.1", .port = 4001});
  job.membership().SetMeetingPoint("beta", {.address = "10.0.0.2", .port = 4002});
  job.Gather({0, 1, 2, 3}, 0);
  job.Answer();
  return job;
}

TEST(JobMembershipHostsTest, RanksAreByHostAndMeetOnThatOfTheOldestMember) {
  Job job(kTwoHosts);
  job.membership().SetMeetingPoint("alpha", {.address = "10.0.0.1", .port = 4001});
  EXPECT_EQ(job.Answer(), "start 0 in 0 of alpha, start 1 in 1 of alpha, start 2 in 0 of beta, start 3 in 1 of beta");
  job.Die(0);
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0 of alpha");
  EXPECT_EQ(job.Gather({4, 3, 2, 1}, 0),
            "1 is 0/4 of 0 at 10.0.0.1, 4 is 1/4 of 0 at 10.0.0.1, 2 is 2/4 of 0 at 10.0.0.1, 3 is 3/4 of 0 at "
            "10.0.0.1");
}

TEST(JobMembershipHostsTest, PlacesTellTheRanksOfTheirHosts) {
  Options options = kTwoHosts;
  options.hosts = {{.name = "alpha", .slots = 1}, {.name = "beta", .slots = 2}, {.name = "gamma", .slots = 1}};
  JobMembership membership(options);
  const absl::Time now = absl::UnixEpoch();
  membership.Begin(now);
  JobMembership::Actions places;
  for (const int member : {0, 1, 2, 3}) places = membership.OnMessage(member, JoinRequest{}, now);
  ASSERT_EQ(places.size(), 4);
  std::vector<std::string> texts;
  for (const auto& action : places) {
    const Topology& at = std::get<EpochPlace>(std::get<JobMembership::SendMessage>(action).message).topology;
    texts.push_back(absl::StrCat(at.local_rank, "/", at.local_size, " ", at.cross_rank, "/", at.cross_size));
  }
  EXPECT_THAT(texts, ::testing::ElementsAre("0/1 0/3", "0/2 1/3", "1/2 0/1", "0/1 2/3"));
}

TEST(JobMembershipHostsTest, SurvivorsOfALostHostMeetInTheMemoryOfTheirs) {
  Job job = OnTwoHosts();
  job.Join(2, 0, 7, "alpha is silent");
  job.Join(3, 0, 7, "alpha is silent");
  EXPECT_EQ(job.LoseHost("alpha", {0, 1}), "2 is 0/2 of 1, 3 is 1/2 of 1");
  EXPECT_EQ(job.Wait(absl::Milliseconds(999)), "");
  EXPECT_EQ(job.Wait(absl::Milliseconds(1)), "start 4 in 0 of alpha, start 5 in 1 of alpha");
}

TEST(JobMembershipHostsTest, AHostThatStaysLostIsTriedEverMoreSeldomAndItsMembersAreNotToBlame) {
  Job job = OnTwoHosts();
  job.LoseHost("alpha", {0, 1});
  job.Gather({2, 3}, 1, 7, "alpha is silent");
  int member = 4;
  for (const int seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    EXPECT_EQ(job.Wait(absl::Seconds(seconds) - absl::Milliseconds(1)), "");
    EXPECT_EQ(job.Wait(absl::Milliseconds(1)),
              absl::StrCat("start ", member, " in 0 of alpha, start ", member + 1, " in 1 of alpha"));
    EXPECT_EQ(job.LoseHost("alpha", {member, member + 1}), "");
    member += 2;
  }
  EXPECT_FALSE(job.membership().is_over());
}

TEST(JobMembershipHostsTest, AHostWhereNoMemberStartsDoesNotEndTheJobOfOthers) {
  Job job(kTwoHosts);
  job.membership().SetMeetingPoint("alpha", {.address = "10.0.0.1", .port = 4001});
  job.Answer();
  job.Die(2);
  job.Die(3);
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0 of beta, start 5 in 1 of beta");
  job.Die(4);
  job.Die(5);
  job.Join(0);
  EXPECT_EQ(job.Join(1), "0 is 0/2 of 0, 1 is 1/2 of 0");
}

TEST(JobMembershipHostsTest, HostsWhereNoMemberStartsEndTheJob) {
  Options options = kTwoHosts;
  options.hosts = {{.name = "alpha", .slots = 1}, {.name = "beta", .slots = 1}};
  options.initial_members = options.max_members = 2;
  Job job(options);
  job.Answer();
  int member = 0;
  for (int round = 0; round < 2; ++round) {
    job.Die(member++);
    job.Die(member++);
    job.Wait(absl::Seconds(1));
  }
  EXPECT_EQ(job.Die(member++), "");
  EXPECT_THAT(job.Die(member), StartsWith("end with 137 6 members in a row have ended before they joined the job"));
}

TEST(JobMembershipHostsTest, MembersOfANewHostAreLetIn) {
  Options options = kTwoHosts;
  options.hosts.pop_back();
  options.initial_members = 2;
  Job job(options);
  job.membership().SetMeetingPoint("alpha", {.address = "10.0.0.1", .port = 4001});
  job.Gather({0, 1}, 0);
  job.Answer();
  EXPECT_EQ(job.SetHosts(kTwoHosts.hosts), "start 2 in 0 of beta, start 3 in 1 of beta");
  job.Join(2);
  EXPECT_EQ(job.Join(3), "");
  EXPECT_THAT(job.Gather({0, 1}, 1, 5), HasSubstr("3 is 3/4 of 1 at 10.0.0.1"));
}

TEST(JobMembershipHostsTest, MembersOfAHostThatIsNotListedAnyMoreAreAskedToLeave) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "ask 0, ask 1");
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "") << "once";
  job.Say(0, LeaveRequest{});
  job.Say(1, LeaveRequest{});
  EXPECT_EQ(job.Gather({2, 3}, 1, 7), "2 is 0/2 of 1, 3 is 1/2 of 1");
  job.Finish(0);
  job.Finish(1);
  EXPECT_EQ(job.Wait(absl::Hours(1)), "");
  EXPECT_EQ(job.SetHosts(kTwoHosts.hosts), "start 4 in 0 of alpha, start 5 in 1 of alpha");
}

TEST(JobMembershipHostsTest, AHostIsLeftOnlyWhenEnoughOthersHaveTheState) {
  Options options = kTwoHosts;
  options.hosts.pop_back();
  options.initial_members = options.max_members = 2;
  Job job(options);
  job.membership().SetMeetingPoint("alpha", {.address = "10.0.0.1", .port = 4001});
  job.Gather({0, 1}, 0);
  job.Answer();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "start 2 in 0 of beta, start 3 in 1 of beta");
  job.Join(2);
  EXPECT_EQ(job.Join(3), "");
  job.Gather({0, 1}, 1, 5);
  EXPECT_EQ(job.Say(2, EpochMet{1}), "");
  EXPECT_EQ(job.Say(3, EpochMet{1}), "ask 0, ask 1");
}

TEST(JobMembershipHostsTest, AMemberThatDoesNotLeaveItsHostIsKilled) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "alpha", .slots = 2}, {.name = "beta", .slots = 1}}), "ask 3");
  EXPECT_EQ(job.Wait(absl::Seconds(599)), "");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "kill 3");
}

TEST(JobMembershipHostsTest, JoiningMembersOfAnUnlistedHostAreEnded) {
  Job job = OnTwoHosts();
  job.LoseHost("beta", {2, 3});
  job.Gather({0, 1}, 1, 7, "beta is silent");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0 of beta, start 5 in 1 of beta");
  job.Join(4);
  job.Answer();
  EXPECT_EQ(job.SetHosts({{.name = "alpha", .slots = 2}}), "tell 4 end its host beta takes no member any more, kill 5");
}

TEST(JobMembershipHostsTest, MembersOfALostHostGetNoPlaceBeforeTheirEndsAreTold) {
  Job job(kTwoHosts);
  job.Answer();
  job.Join(0);
  job.Join(1);
  job.Join(2);
  EXPECT_EQ(job.LoseHost("alpha", {}), "");
  EXPECT_EQ(job.Join(3), "2 is 0/2 of 0, 3 is 1/2 of 0");
  EXPECT_EQ(job.LoseHost("alpha", {0, 1}), "");
}

TEST(JobMembershipHostsTest, LostMembersMakeNoOtherMemberLeave) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.LoseHost("beta", {}), "");
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "");
}

TEST(JobMembershipHostsTest, LeavingMembersMakeNoOtherMemberLeave) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "ask 0, ask 1");
  EXPECT_EQ(job.SetHosts({{.name = "alpha", .slots = 2}}), "") << "0 and 1 are about to leave";
}

TEST(JobMembershipHostsTest, EndingJobAsksNoMemberToLeave) {
  Job job = OnTwoHosts();
  job.Finish(2);
  EXPECT_EQ(job.SetHosts({{.name = "alpha", .slots = 2}, {.name = "beta", .slots = 1}}), "");
}

TEST(JobMembershipHostsTest, AMemberThatIsAskedToLeaveLivesIfItsHostIsListedAgain) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "ask 0, ask 1");
  EXPECT_EQ(job.SetHosts(kTwoHosts.hosts), "");
  EXPECT_EQ(job.Wait(absl::Hours(1)), "");
}

TEST(JobMembershipHostsTest, AMemberThatIsAskedToLeaveLivesIfItIsNeededAfterAll) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "ask 0, ask 1");
  job.Stop(2);
  EXPECT_EQ(job.Stop(3), "");
  EXPECT_EQ(job.Wait(absl::Seconds(10)), "kill 2, kill 3");
  EXPECT_EQ(job.Wait(absl::Hours(1)), "") << "0 and 1 are the last that have the state";
}

TEST(JobMembershipHostsTest, AMemberThatHasLeftItsHostIsReplacedIfTheHostIsListedAgain) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "alpha", .slots = 2}, {.name = "beta", .slots = 1}}), "ask 3");
  EXPECT_EQ(job.SetHosts(kTwoHosts.hosts), "");
  job.Say(3, LeaveRequest{});
  EXPECT_EQ(job.Finish(3), "start 4 in 1 of beta");
}

TEST(JobMembershipHostsTest, AJobWhoseLastMembersLeaveTheirHostGoesOnElsewhere) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "ask 0, ask 1");
  job.Die(2);
  job.Die(3);
  job.Say(0, LeaveRequest{});
  job.Say(1, LeaveRequest{});
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0 of beta, start 5 in 1 of beta");
}

TEST(JobMembershipHostsTest, AJobWithoutHostsWaitsForSomeEvenIfAMemberHasFailedToStart) {
  Job job(kTwoHosts);
  job.Answer();
  job.Die(0);
  EXPECT_EQ(job.SetHosts({}), "kill 1, kill 2, kill 3");
  job.SetHosts(kTwoHosts.hosts);
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0 of alpha");
}

}  // namespace
}  // namespace ronda
