// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/membership/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/programs/rondarun/membership/membership_job.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Job;
using ::testing::StartsWith;

using Options = JobMembership::Options;

const Options kFour = {.initial_members = 4, .min_members = 2, .max_members = 4};

// Returns a job whose initial members, 0 to 3 with kFour, are in epoch 0.
Job Running(const Options& options = kFour) {
  Job job(options);
  std::vector<int> members;
  for (int member = 0; member < options.initial_members; ++member) members.push_back(member);
  job.Gather(members, 0);
  job.Answer();
  return job;
}

TEST(JobMembershipTest, TheFirstEpochBeginsWhenAllHaveJoined) {
  Job job(kFour);
  EXPECT_EQ(job.Answer(), "start 0 in 0, start 1 in 1, start 2 in 2, start 3 in 3");
  EXPECT_EQ(job.Join(2), "");
  EXPECT_EQ(job.Join(0), "");
  EXPECT_EQ(job.Join(3), "");
  EXPECT_EQ(job.Join(1), "0 is 0/4 of 0, 1 is 1/4 of 0, 2 is 2/4 of 0, 3 is 3/4 of 0");
}

TEST(JobMembershipTest, TheFirstEpochDoesWithoutThoseThatAreLateToStart) {
  Job job(kFour);
  job.Answer();
  job.Join(2);
  job.Join(1);
  EXPECT_EQ(job.Wait(absl::Seconds(29)), "");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "1 is 0/2 of 0, 2 is 1/2 of 0");
  job.Say(1, EpochMet{0});
  job.Say(2, EpochMet{0});
  EXPECT_EQ(job.Join(0), "tell 1 change, tell 2 change");
}

TEST(JobMembershipTest, SurvivorsMeetAtOnceAndAReplacementIsStarted) {
  Job job = Running();
  EXPECT_EQ(job.Die(0), "");
  EXPECT_EQ(job.Gather({2, 1, 3}, 1, 7, "0 died"), "1 is 0/3 of 1, 2 is 1/3 of 1, 3 is 2/3 of 1");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0");
  EXPECT_EQ(job.Join(4), "tell 1 change, tell 2 change, tell 3 change");
  EXPECT_EQ(job.Gather({3, 1, 2}, 2, 9), "1 is 0/4 of 2, 2 is 1/4 of 2, 3 is 2/4 of 2, 4 is 3/4 of 2");
}

TEST(JobMembershipTest, MembersThatDoNotLeaveAFailedEpochAreKilled) {
  Job job = Running();
  job.Join(1, 0, 7, "0 is silent");
  job.Join(3, 0, 7, "0 is silent");
  EXPECT_EQ(job.Wait(absl::Milliseconds(4999)), "");
  EXPECT_EQ(job.Wait(absl::Milliseconds(1)), "kill 0, kill 2, 1 is 0/2 of 1, 3 is 1/2 of 1");
  EXPECT_EQ(job.Join(0, 0, 7), "") << "its words come too late";
  EXPECT_EQ(job.Die(0), "");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 0");
}

TEST(JobMembershipTest, ADeathWhileMembersMeetMakesTheNextEpoch) {
  Job job = Running();
  job.Die(3);
  for (const int member : {0, 1, 2}) job.Join(member, 0, 7, "3 died");
  job.Say(0, EpochMet{1});
  EXPECT_EQ(job.Die(2), "");
  EXPECT_EQ(job.Join(1, 1, 7, "2 died"), "");
  EXPECT_EQ(job.Join(0, 1, 7, "2 died"), "0 is 0/2 of 2, 1 is 1/2 of 2");
}

// The other members wait up to 10 s for the dead member by themselves. Meanwhile the launcher must not kill them,
// because they may be the only members that have the state.
TEST(JobMembershipTest, MembersThatWaitForOneThatDiedWhileTheyMeetAreNotLate) {
  Job job = Running();
  job.Die(3);
  for (const int member : {0, 1, 2}) job.Join(member, 0, 7, "3 died");
  job.Die(0);
  EXPECT_EQ(job.Join(1, 1, 7, "0 died"), "");
  EXPECT_EQ(job.Wait(absl::Seconds(10)), "start 4 in 0, start 5 in 3");
  EXPECT_EQ(job.Join(2, 1, 7, "0 has not come"), "1 is 0/2 of 2, 2 is 1/2 of 2");
}

TEST(JobMembershipTest, TooFewMembersWaitForReplacements) {
  Job job = Running({.initial_members = 2, .min_members = 2, .max_members = 2});
  job.Die(0);
  EXPECT_EQ(job.Join(1, 0, 7, "0 died"), "");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 2 in 0");
  EXPECT_EQ(job.Join(2), "1 is 0/2 of 1, 2 is 1/2 of 1");
}

TEST(JobMembershipTest, TooFewMembersForTooLongEndTheJob) {
  Job job = Running({.initial_members = 2,
                     .min_members = 2,
                     .max_members = 2,
                     .elastic_timeout = absl::Seconds(20),
                     .min_cooldown = absl::Seconds(60),
                     .max_cooldown = absl::Seconds(60)});
  job.Die(0);
  job.Join(1, 0, 7, "0 died");
  EXPECT_EQ(job.Wait(absl::Seconds(19)), "");
  EXPECT_EQ(job.Wait(absl::Seconds(1)),
            "end with 1 there were not enough members for 20s (--elastic-timeout): 1 member waits for the others, and "
            "the job needs 2 (--min-np); member 0 was killed");
}

TEST(JobMembershipTest, AStoppedMemberIsKilledAfterTenSeconds) {
  Job job = Running();
  EXPECT_EQ(job.Stop(2), "");
  EXPECT_EQ(job.Wait(absl::Seconds(9)), "");
  EXPECT_EQ(job.Continue(2), "");
  EXPECT_EQ(job.Wait(absl::Seconds(9)), "");
  EXPECT_EQ(job.Stop(2), "");
  EXPECT_EQ(job.Wait(absl::Seconds(10)), "kill 2");
}

// Members on other hosts may notice the stopped member before the launcher kills it.
TEST(JobMembershipTest, AStoppedMemberIsKilledAtOnceWhenOthersHaveLeftItsEpoch) {
  Job job = Running();
  EXPECT_EQ(job.Stop(2), "");
  EXPECT_EQ(job.Join(0, 0, 7, "2 is silent"), "kill 2");
  job.Join(1, 0, 7, "2 is silent");
  EXPECT_EQ(job.Join(3, 0, 7, "2 is silent"), "0 is 0/3 of 1, 1 is 1/3 of 1, 3 is 2/3 of 1");
}

TEST(JobMembershipTest, ALeaverIsNotReplaced) {
  Job job = Running();
  EXPECT_EQ(job.Say(0, LeaveRequest{}), "");
  EXPECT_EQ(job.Gather({1, 2, 3}, 1, 7), "1 is 0/3 of 1, 2 is 1/3 of 1, 3 is 2/3 of 1");
  EXPECT_EQ(job.Finish(0), "");
  EXPECT_EQ(job.Wait(absl::Hours(1)), "");
  for (const int member : {1, 2}) EXPECT_EQ(job.Finish(member), "");
  EXPECT_EQ(job.Finish(3), "end with 0 ");
}

TEST(JobMembershipTest, LeaversBelowTheMinimumAreReplaced) {
  Job job = Running({.initial_members = 2, .min_members = 2, .max_members = 2});
  job.Say(0, LeaveRequest{});
  EXPECT_EQ(job.Join(1, 0, 7), "");
  EXPECT_EQ(job.Finish(0), "start 2 in 0");
  EXPECT_EQ(job.Join(2), "1 is 0/2 of 1, 2 is 1/2 of 1");
}

TEST(JobMembershipTest, WhenAllLeaveTheJobHasEndedWell) {
  Job job = Running();
  for (const int member : {0, 1, 2, 3}) EXPECT_EQ(job.Say(member, LeaveRequest{}), "");
  for (const int member : {0, 1, 2}) EXPECT_EQ(job.Finish(member), "");
  EXPECT_EQ(job.Finish(3), "end with 0 ");
}

TEST(JobMembershipTest, TheJobGrowsToItsMaximum) {
  Job job({.initial_members = 2, .min_members = 1, .max_members = 3});
  EXPECT_EQ(job.Answer(), "start 0 in 0, start 1 in 1");
  job.Join(0);
  EXPECT_EQ(job.Join(1), "0 is 0/2 of 0, 1 is 1/2 of 0, start 2 in 2");
  EXPECT_EQ(job.Join(2), "") << "nobody has met yet";
  EXPECT_EQ(job.Say(0, EpochMet{0}), "tell 0 change");
  EXPECT_EQ(job.Say(1, EpochMet{0}), "tell 1 change");
  EXPECT_EQ(job.Gather({0, 1}, 1, 3), "0 is 0/3 of 1, 1 is 1/3 of 1, 2 is 2/3 of 1");
}

TEST(JobMembershipTest, JobStartsNoMemberOnceOneHasEndedWell) {
  Job job = Running();
  job.Die(1);
  job.Gather({0, 2, 3}, 1, 7, "1 died");
  job.Wait(absl::Seconds(1));
  job.Join(4);
  EXPECT_EQ(job.Finish(0), "tell 4 end the job is finishing");
  EXPECT_EQ(job.Wait(absl::Seconds(5)), "kill 4");
  job.Die(4);
  EXPECT_EQ(job.Finish(2), "");
  EXPECT_EQ(job.Finish(3), "end with 0 ") << "the death of a joining member that was told to end is none of the job's";
}

TEST(JobMembershipTest, AFailureInTheLastEpochIsTheJobs) {
  Job job = Running();
  job.Finish(0);
  job.Die(1);
  job.Finish(2);
  EXPECT_EQ(job.Finish(3), "end with 137 member 1 was killed");
}

TEST(JobMembershipTest, MembersDoNotWaitForMembersThatEndedWell) {
  Job job = Running();
  for (const int member : {0, 1, 2}) job.Finish(member);
  EXPECT_EQ(job.Join(3, 0, 7, "0 is gone"),
            "end with 1 others have ended well, but 1 member waits for the others, and the job needs 2 (--min-np)");
}

TEST(JobMembershipTest, ThreeFailuresAtOneStepEndTheJob) {
  Job job = Running();
  job.Die(3);
  job.Gather({0, 1, 2}, 1, 41, "3 died");
  job.Die(2);
  job.Gather({0, 1}, 2, 41, "2 died");
  job.Die(1);
  job.Wait(absl::Seconds(1));
  job.Join(4);
  EXPECT_THAT(job.Join(0, 2, 41, "1 died"),
              StartsWith("end with 137 3 epochs in a row have failed at the same step (the newest that is complete: "
                         "41); the last failure: member 1 was killed; 1 died"));
}

TEST(JobMembershipTest, EpochsThatDoNotMeetFailAtNoStepButNotForEver) {
  Job job = Running();
  for (int epoch = 0; epoch <= 10; ++epoch) {
    ASSERT_EQ(job.Answer(), "") << epoch;
    for (const int member : {0, 1, 2}) job.Join(member, epoch, 41, "no answer");
    const std::string answer = job.Join(3, epoch, 41, "no answer");
    ASSERT_THAT(answer, StartsWith(epoch < 10 ? absl::StrCat("0 is 0/4 of ", epoch + 1)
                                              : "end with 1 the members of 10 epochs in a row could not meet; the last "
                                                "failure: no answer"));
  }
}

TEST(JobMembershipTest, FailuresAtOtherStepsAndPlannedChangesDoNotCount) {
  Job job = Running();
  std::vector<int> members = {0, 1, 2, 3};
  for (int epoch = 1; epoch < 20; ++epoch) {
    const bool fails = epoch % 2 == 1;
    job.Gather(members, epoch, epoch / 4, fails ? "a deadline" : "");
    ASSERT_FALSE(job.membership().is_over()) << epoch;
  }
}

TEST(JobMembershipTest, TheResetLimitEndsTheJob) {
  Options options = kFour;
  options.reset_limit = 1;
  Job job = Running(options);
  job.Gather({0, 1, 2, 3}, 1, 1, "a deadline");
  for (const int member : {0, 1, 2}) EXPECT_EQ(job.Join(member, 1, 2, "a deadline"), "");
  EXPECT_THAT(job.Join(3, 1, 2, "a deadline"), AllOf(StartsWith("end with 1 "), HasSubstr("--reset-limit 1 has been")));
}

TEST(JobMembershipTest, AProgramThatDiesAtItsStartIsNotStartedForEver) {
  Job job(kFour);
  job.Answer();
  job.Die(0);
  job.Die(1);
  EXPECT_EQ(job.Die(2),
            "end with 137 3 members in a row have ended before they joined the job: 0 members wait for the others, and "
            "the job needs 2 (--min-np); the last one: member 2 was killed");
}

TEST(JobMembershipTest, AJobWhoseReplacementsFailGoesOnAndTriesEverMoreSeldom) {
  Options options = kFour;
  options.min_cooldown = options.max_cooldown = absl::Seconds(1);
  options.min_host_cooldown = absl::Seconds(100);
  options.max_host_cooldown = absl::Seconds(300);
  Job job = Running(options);
  job.Die(3);
  job.Gather({0, 1, 2}, 1, 5, "3 died");
  int member = 4;
  for (const int seconds : {1, 1, 1, 100, 200, 300, 300}) {
    EXPECT_EQ(job.Wait(absl::Seconds(seconds) - absl::Milliseconds(1)), "");
    EXPECT_EQ(job.Wait(absl::Milliseconds(1)), absl::StrCat("start ", member, " in 3"));
    EXPECT_EQ(job.Die(member++), "");
  }
}

TEST(JobMembershipTest, ASlotCoolsDownTwiceAsLongEachTime) {
  Options options = kFour;
  options.min_cooldown = absl::Seconds(10);
  options.max_cooldown = absl::Seconds(35);
  Job job = Running(options);
  job.Die(3);
  job.Gather({0, 1, 2}, 1, 5, "3 died");
  int member = 4;
  for (const int seconds : {10, 20, 35, 35}) {
    EXPECT_EQ(job.Wait(absl::Seconds(seconds) - absl::Milliseconds(1)), "");
    EXPECT_EQ(job.Wait(absl::Milliseconds(1)), absl::StrCat("start ", member, " in 3"));
    job.Join(member);
    job.Die(member++);
  }
}

TEST(JobMembershipTest, AMemberThatNeverJoinsIsKilled) {
  Job job = Running();
  job.Die(3);
  job.Gather({0, 1, 2}, 1, 5, "3 died");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 3");
  EXPECT_EQ(job.Wait(absl::Seconds(599)), "");
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "kill 4");
}

TEST(JobMembershipTest, MembersThatNeverMeetAreKilled) {
  Job job(kFour);
  job.Answer();
  for (const int member : {0, 1, 2, 3}) job.Join(member);
  for (const int member : {0, 1, 2}) job.Say(member, EpochMet{0});
  EXPECT_EQ(job.Wait(absl::Seconds(600)), "kill 3");
}

TEST(JobMembershipTest, WordsOutOfTurnAreMisbehaviour) {
  Job job(kFour);
  job.Answer();
  job.Join(0);
  EXPECT_EQ(job.Join(0), "kill 0");
  EXPECT_EQ(job.Say(1, EpochMet{0}), "kill 1");
  EXPECT_EQ(job.Join(2, 5), "kill 2");
  EXPECT_EQ(job.Say(7, LeaveRequest{}), "");
  EXPECT_EQ(job.Misbehave(3), "kill 3");
}

TEST(JobMembershipTest, MembersThatAreLateToJoinLiveIfNobodyWaitsForThemAnyMore) {
  Job job = Running();
  job.Join(0, 0, 7, "1 is silent");
  EXPECT_EQ(job.Die(0), "");
  EXPECT_EQ(job.Wait(absl::Milliseconds(4999)), "start 4 in 0");
  EXPECT_EQ(job.Join(4), "tell 1 change, tell 2 change, tell 3 change");
  EXPECT_EQ(job.Wait(absl::Hours(1)), "") << "they are the last that have the state";
  EXPECT_EQ(job.Gather({1, 2, 3}, 1, 7, "0 died"), "1 is 0/4 of 1, 2 is 1/4 of 1, 3 is 2/4 of 1, 4 is 3/4 of 1");
}

TEST(JobMembershipTest, ALeaverWhoseEpochFailsIsNotReplacedEither) {
  Job job = Running();
  job.Say(0, LeaveRequest{});
  job.Die(1);
  EXPECT_EQ(job.Join(0, 0, 7, "1 died"), "tell 0 end it has asked to leave");
  EXPECT_EQ(job.Gather({2, 3}, 1, 7, "1 died"), "2 is 0/2 of 1, 3 is 1/2 of 1");
  job.Die(0);
  EXPECT_EQ(job.Wait(absl::Seconds(1)), "start 4 in 1");
}

TEST(JobMembershipTest, AProgramWithoutRondaEndsAsItsProcessesDo) {
  Job well(kFour);
  well.Answer();
  for (const int member : {0, 1, 2}) EXPECT_EQ(well.Finish(member), "");
  EXPECT_EQ(well.Finish(3), "end with 0 ");
  Job badly(kFour);
  badly.Answer();
  for (const int member : {0, 1, 2}) EXPECT_EQ(badly.Finish(member), "");
  EXPECT_EQ(badly.Die(3), "end with 137 member 3 was killed");
}

}  // namespace
}  // namespace ronda
