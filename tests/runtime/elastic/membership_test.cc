#include "runtime/elastic/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"

namespace ronda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Options = JobMembership::Options;

const Options kFour = {.initial_members = 4, .min_members = 2, .max_members = 4};

std::string Describe(const JobMembership::Action& action) {
  if (const auto* start = std::get_if<JobMembership::StartMember>(&action)) {
    return absl::StrCat("start ", start->member, " in ", start->slot, start->host.empty() ? "" : " of ", start->host);
  }
  if (const auto* ask = std::get_if<JobMembership::AskToLeave>(&action)) return absl::StrCat("ask ", ask->member);
  if (const auto* kill = std::get_if<JobMembership::KillMember>(&action)) return absl::StrCat("kill ", kill->member);
  if (const auto* end = std::get_if<JobMembership::EndJob>(&action)) {
    return absl::StrCat("end with ", end->exit_code, " ", end->why);
  }
  const auto& send = std::get<JobMembership::SendMessage>(action);
  if (const auto* place = std::get_if<EpochPlace>(&send.message)) {
    return absl::StrCat(send.member, " is ", place->topology.rank, "/", place->topology.size, " of ", place->epoch,
                        place->master_port == 0 ? "" : absl::StrCat(" at ", place->master_address));
  }
  return absl::StrCat("tell ", send.member, " ", Encode(send.message));
}

// A job without hosts is on one that has a slot for each of its members, and no name.
Options WithHosts(Options options) {
  if (options.hosts.empty()) options.hosts = {{.name = "", .slots = options.max_members}};
  return options;
}

// Tells a job's membership what happens, and keeps what it answers: "start 0 in 0, start 1 in 1".
class Job {
 public:
  explicit Job(const Options& options) : membership_(WithHosts(options)) { Take(membership_.Begin(now_)); }

  std::string Answer() { return absl::StrJoin(std::exchange(answers_, {}), ", "); }

  std::string Join(int member, int64_t epoch = -1, int64_t step = -1, const std::string& reason = "") {
    return Say(member, JoinRequest{.last_epoch = epoch, .step = step, .reason = reason});
  }
  std::string Say(int member, const MemberMessage& message) {
    Take(membership_.OnMessage(member, message, now_));
    return Answer();
  }
  std::string Die(int member) {
    Take(membership_.OnExit(member, {.exit_code = 137, .describe = "was killed"}, now_));
    return Answer();
  }
  std::string Finish(int member) {
    Take(membership_.OnExit(member, {.exit_code = 0, .describe = "exited"}, now_));
    return Answer();
  }
  std::string Misbehave(int member) {
    Take(membership_.OnMisbehaviour(member, "said nonsense", now_));
    return Answer();
  }
  // Nothing happens for so long.
  std::string Wait(absl::Duration time) {
    const absl::Time end = now_ + time;
    for (int round = 0; membership_.deadline() <= end; ++round) {
      if (round == 1000) return "time does not pass";
      now_ = std::max(now_, membership_.deadline());
      Take(membership_.OnTime(now_));
    }
    now_ = end;
    return Answer();
  }
  std::string Stop(int member) {
    Take(membership_.OnStop(member, now_));
    return Answer();
  }
  std::string SetHosts(const std::vector<JobMembership::Host>& hosts) {
    Take(membership_.OnHosts(hosts, now_));
    return Answer();
  }
  // With its members, which are told after it.
  std::string LoseHost(const std::string& host, const std::vector<int>& members) {
    Take(membership_.OnHostLost(host, now_));
    for (const int member : members) {
      Take(membership_.OnExit(
          member, {.exit_code = 1, .describe = "was lost", .cause = JobMembership::Exit::Cause::kLostHost}, now_));
    }
    return Answer();
  }
  std::string Continue(int member) {
    Take(membership_.OnContinue(member, now_));
    return Answer();
  }

  // All of these join, and then meet. Returns the answers to the joins.
  std::string Gather(const std::vector<int>& members, int64_t epoch, int64_t step = -1, const std::string& why = "") {
    std::vector<std::string> answers;
    for (const int member : members) {
      if (std::string answer = Join(member, epoch - 1, step, why); !answer.empty()) answers.push_back(answer);
    }
    for (const int member : members) Say(member, EpochMet{.epoch = epoch});
    return absl::StrJoin(answers, ", ");
  }

  JobMembership& membership() { return membership_; }

 private:
  void Take(const JobMembership::Actions& actions) {
    for (const JobMembership::Action& action : actions) answers_.push_back(Describe(action));
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  JobMembership membership_;
  std::vector<std::string> answers_;
};

// A job of kFour whose members 0 to 3 are in epoch 0.
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

// Ranks on other hosts may notice it before the launcher kills it.
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

TEST(JobMembershipTest, NobodyIsStartedOrLetInOnceAMemberHasEndedWell) {
  Job job = Running();
  job.Die(1);
  job.Gather({0, 2, 3}, 1, 7, "1 died");
  job.Wait(absl::Seconds(1));
  job.Join(4);
  EXPECT_EQ(job.Finish(0), "tell 4 end the job is finishing");
  EXPECT_EQ(job.Wait(absl::Seconds(5)), "kill 4");
  job.Die(4);
  EXPECT_EQ(job.Finish(2), "");
  EXPECT_EQ(job.Finish(3), "end with 0 ") << "the death of a newcomer that was told to end is none of the job's";
}

TEST(JobMembershipTest, AFailureInTheLastEpochIsTheJobs) {
  Job job = Running();
  job.Finish(0);
  job.Die(1);
  job.Finish(2);
  EXPECT_EQ(job.Finish(3), "end with 137 member 1 was killed");
}

TEST(JobMembershipTest, ThoseLeftBehindByMembersThatEndedWellDoNotWait) {
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

// -- Several hosts --

// Members 0 and 1 are on alpha, 2 and 3 on beta, and all of them in epoch 0.
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

TEST(JobMembershipHostsTest, NewcomersOfAHostThatIsNotListedAnyMoreAreEnded) {
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

TEST(JobMembershipHostsTest, NobodyIsAskedToLeaveForTheSakeOfMembersThatAreLost) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.LoseHost("beta", {}), "");
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "");
}

TEST(JobMembershipHostsTest, NobodyIsAskedToLeaveForTheSakeOfMembersThatWereAskedToo) {
  Job job = OnTwoHosts();
  EXPECT_EQ(job.SetHosts({{.name = "beta", .slots = 2}}), "ask 0, ask 1");
  EXPECT_EQ(job.SetHosts({{.name = "alpha", .slots = 2}}), "") << "0 and 1 are about to leave";
}

TEST(JobMembershipHostsTest, NobodyIsAskedToLeaveAJobThatIsAtItsEnd) {
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
