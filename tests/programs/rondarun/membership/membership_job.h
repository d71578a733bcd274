// SPDX-License-Identifier: Apache-2.0

// Helpers for tests to report events to a JobMembership.
#ifndef RONDA_TESTS_PROGRAMS_RONDARUN_MEMBERSHIP_MEMBERSHIP_JOB_H_
#define RONDA_TESTS_PROGRAMS_RONDARUN_MEMBERSHIP_MEMBERSHIP_JOB_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "programs/rondarun/membership/membership.h"

namespace ronda::testing {

inline std::string Describe(const JobMembership::Action& action) {
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

// Returns `options` with at least one host. If there is none, adds one that has no name, and a slot for each member.
inline JobMembership::Options WithHosts(JobMembership::Options options) {
  if (options.hosts.empty()) options.hosts = {{.name = "", .slots = options.max_members}};
  return options;
}

// Reports events to a JobMembership, and returns its actions as text, for example "start 0 in 0, start 1 in 1".
class Job {
 public:
  explicit Job(const JobMembership::Options& options) : membership_(WithHosts(options)) {
    Apply(membership_.Begin(now_));
  }

  std::string Answer() { return absl::StrJoin(std::exchange(answers_, {}), ", "); }

  std::string Join(int member, int64_t epoch = -1, int64_t step = -1, const std::string& reason = "") {
    return Say(member, JoinRequest{.last_epoch = epoch, .step = step, .reason = reason});
  }
  std::string Say(int member, const MemberMessage& message) {
    Apply(membership_.OnMessage(member, message, now_));
    return Answer();
  }
  std::string Die(int member) {
    Apply(membership_.OnExit(member, {.exit_code = 137, .describe = "was killed"}, now_));
    return Answer();
  }
  std::string Finish(int member) {
    Apply(membership_.OnExit(member, {.exit_code = 0, .describe = "exited"}, now_));
    return Answer();
  }
  std::string Misbehave(int member) {
    Apply(membership_.OnMisbehaviour(member, "said nonsense", now_));
    return Answer();
  }
  // Lets `time` pass without an event.
  std::string Wait(absl::Duration time) {
    const absl::Time end = now_ + time;
    for (int round = 0; membership_.deadline() <= end; ++round) {
      if (round == 1000) return "time does not pass";
      now_ = std::max(now_, membership_.deadline());
      Apply(membership_.OnTime(now_));
    }
    now_ = end;
    return Answer();
  }
  std::string Stop(int member) {
    Apply(membership_.OnStop(member, now_));
    return Answer();
  }
  std::string SetHosts(const std::vector<JobMembership::Host>& hosts) {
    Apply(membership_.OnHosts(hosts, now_));
    return Answer();
  }
  // Reports the loss of the host, and then the loss of its members.
  std::string LoseHost(const std::string& host, const std::vector<int>& members) {
    Apply(membership_.OnHostLost(host, now_));
    for (const int member : members) {
      Apply(membership_.OnExit(
          member, {.exit_code = 1, .describe = "was lost", .cause = JobMembership::Exit::Cause::kLostHost}, now_));
    }
    return Answer();
  }
  std::string Continue(int member) {
    Apply(membership_.OnContinue(member, now_));
    return Answer();
  }

  // Reports that all of `members` have joined, and then that they have met. Returns the answers to the joins.
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
  void Apply(const JobMembership::Actions& actions) {
    for (const JobMembership::Action& action : actions) answers_.push_back(Describe(action));
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  JobMembership membership_;
  std::vector<std::string> answers_;
};

}  // namespace ronda::testing

#endif  // RONDA_TESTS_PROGRAMS_RONDARUN_MEMBERSHIP_MEMBERSHIP_JOB_H_
