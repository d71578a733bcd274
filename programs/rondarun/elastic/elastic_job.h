// SPDX-License-Identifier: Apache-2.0

#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_ELASTIC_JOB_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_ELASTIC_JOB_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/elastic/agent_host.h"
#include "programs/rondarun/elastic/host_discovery.h"
#include "programs/rondarun/elastic/member_processes.h"
#include "programs/rondarun/elastic/node_list.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/types.h"

namespace ronda {

// Manages the members of an elastic job. Executes the decisions of JobMembership, and reports events to it. Each member
// is a process that is connected by a socket. The members are either children of this process, or children of agents,
// one per host.
//
// Thread-compatible; owned by a Supervisor.
class ElasticJob final : public SupervisedMembers, private HostListener {
 public:
  struct Options {
    JobMembership::Options membership;
    MemberProcesses::MakeMember make_member;  // for children of this process; empty: agents start the members
    std::function<AgentHost::Options(const std::string& host)> describe_host;  // of agents
    std::optional<HostDiscovery::Options> discovery;                           // nullopt: no program lists the hosts
    std::shared_ptr<NodeList> nodes;                                           // nullptr: no hosts come by themselves
  };

  ElasticJob(Options options, MemberSupervision supervision);

  void Begin() override;
  void AddTo(PollSet* poll) override;
  void OnChildSignal() override;
  void OnStart(RankId member, pid_t pid) override;
  void OnEnd(const RankEnd& end) override;
  void OnTime() override;
  absl::Time deadline() const override;
  void Stop(absl::string_view why) override;
  bool is_over() const override { return is_stopped_ || membership_.is_over(); }

 private:
  struct Member {
    MemberHost* host = nullptr;  // not owned
    std::string host_name;
    pid_t pid = 0;  // 0: not known yet
  };

  void OnMessage(int member, absl::string_view text) override;
  void OnMisbehaviour(int member, absl::string_view why) override;
  void OnMotion(int member, Motion motion) override;
  void OnNotStarted(int member, int exit_code, absl::string_view why) override;
  void OnMeetingPoint(const std::string& host, const JobMembership::MeetingPoint& point) override;
  void OnHostLost(const std::string& host, absl::string_view why) override;
  void OnHosts(const std::vector<JobMembership::Host>& hosts);
  void OnNodes(const std::vector<JobMembership::Host>& hosts);
  void OnTooFewNodes(const std::string& what);

  void CarryOut(const JobMembership::Actions& actions);
  void Do(const JobMembership::StartMember& start);
  void Do(const JobMembership::SendMessage& send);
  void Do(const JobMembership::KillMember& kill);
  void Do(const JobMembership::AskToLeave& ask);
  void Do(const JobMembership::EndJob& end);
  void AnnounceEpoch(const JobMembership::Actions& actions);
  void Signal(int member, int signo, absl::string_view why);

  MemberHost* FindHost(const std::string& name);
  void TellEnd(absl::string_view why);
  void GiveUp(int exit_code, absl::string_view why);
  void Say(absl::string_view text) { supervision_.listener->Say(text); }
  absl::Time now() const { return supervision_.clock->Now(); }

  const Options options_;
  const MemberSupervision supervision_;
  JobMembership membership_;
  std::unique_ptr<MemberProcesses> processes_;                // nullptr: members are behind agents
  std::map<std::string, std::unique_ptr<AgentHost>> agents_;  // by host
  std::unique_ptr<HostDiscovery> discovery_;                  // nullptr: none
  std::map<int, Member> members_;                             // that have not ended
  bool is_stopped_ = false;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_ELASTIC_JOB_H_
