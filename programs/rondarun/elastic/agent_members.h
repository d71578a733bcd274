// SPDX-License-Identifier: Apache-2.0

// The agent's part of an elastic job.
#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_AGENT_MEMBERS_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_AGENT_MEMBERS_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/member_processes.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/supervise/agent.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// The members of an elastic job on an agent's host. Executes the launcher's orders, and reports events to the launcher.
//
// Thread-compatible; owned by the agent's Supervisor.
class AgentMembers final : public SupervisedMembers, private MemberListener {
 public:
  struct Options {
    MemberProcesses::MakeMember make_member;
    std::function<void(const AgentMessage& message)> send;  // to the launcher
    AgentPart::SignsOfLife signs;
    std::vector<AgentMessage> first_messages;  // sent by the launcher before the supervisor's loop begins
  };

  AgentMembers(Options options, MemberSupervision supervision);

  // Handles a message from the launcher.
  void Receive(const AgentMessage& message);

  // Sends a member's last messages to the launcher. Must be called before the agent reports the member's end to the
  // launcher.
  void PassFinalMessages(RankId member) { processes_.OnEnd(member); }

  // Returns whether the launcher has been silent for too long.
  bool is_forsaken() const { return is_forsaken_; }

  void Begin() override;
  void AddTo(PollSet* poll) override { processes_.AddTo(poll); }
  void OnChildSignal() override { processes_.OnChildSignal(); }
  void OnStart(RankId, pid_t) override {}
  void OnEnd(const RankEnd&) override {}
  void OnTime() override;
  absl::Time deadline() const override { return is_forsaken_ ? absl::InfiniteFuture() : next_sign_; }
  void Stop(absl::string_view) override { is_over_ = true; }
  bool is_over() const override { return is_over_; }

 private:
  void OnMessage(int member, absl::string_view text) override;
  void OnMisbehaviour(int member, absl::string_view why) override;
  void OnMotion(int member, Motion motion) override;
  void Start(const JobMembership::StartMember& start);
  absl::Time now() const { return supervision_.clock->Now(); }

  const Options options_;
  const MemberSupervision supervision_;
  MemberProcesses processes_;
  absl::Time last_heard_;
  absl::Time next_sign_;
  bool is_over_ = false;
  bool is_forsaken_ = false;
};

// Makes this process the agent of the job on this host, until the result is destroyed. An earlier agent of the job may
// still be running, because it has not yet noticed that its launcher is gone. Ends that agent and its members, so that
// no slot has two members.
//
// Errors: DEADLINE_EXCEEDED if that agent does not end; those of the operating system.
absl::StatusOr<UniqueFd> BecomeAgent(const std::string& job_id, const std::string& host);

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_AGENT_MEMBERS_H_
