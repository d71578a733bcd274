// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/elastic_job.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {
namespace {

std::string Name(int member) { return absl::StrCat("member ", member); }

// Returns a text such as "member 3" or "members 1, 3".
std::string NameMembers(const std::vector<int>& members) {
  return absl::StrCat(members.size() == 1 ? "member " : "members ", absl::StrJoin(members, ", "));
}

}  // namespace

ElasticJob::ElasticJob(Options options, MemberSupervision supervision)
    : options_(std::move(options)), supervision_(std::move(supervision)), membership_(options_.membership) {
  if (options_.make_member) {
    MemberListener* const self = this;
    processes_ = std::make_unique<MemberProcesses>(options_.make_member, supervision_, self);
  }
  if (options_.discovery.has_value()) {
    discovery_ = std::make_unique<HostDiscovery>(
        *options_.discovery, supervision_, [this](const std::vector<JobMembership::Host>& hosts) { OnHosts(hosts); });
  }
}

void ElasticJob::Begin() {
  if (options_.nodes != nullptr) {
    options_.nodes->Begin({.on_hosts = [this](const std::vector<JobMembership::Host>& hosts) { OnNodes(hosts); },
                           .on_shortage = [this](const std::string& what) { OnTooFewNodes(what); },
                           .say = [this](absl::string_view text) { supervision_.listener->Say(text); },
                           .clock = supervision_.clock});
  }
  CarryOut(membership_.Begin(now()));
}

void ElasticJob::AddTo(PollSet* poll) {
  if (processes_ != nullptr) processes_->AddTo(poll);
  if (options_.nodes != nullptr && !is_over()) options_.nodes->AddTo(poll);
}

void ElasticJob::OnChildSignal() {
  if (processes_ != nullptr) processes_->OnChildSignal();
}

void ElasticJob::OnStart(RankId member, pid_t pid) {
  const auto found = members_.find(member);
  if (found != members_.end()) found->second.pid = pid;
}

void ElasticJob::OnEnd(const RankEnd& end) {
  if (processes_ != nullptr) processes_->OnEnd(end.rank);
  members_.erase(end.rank);
  if (is_over()) return;
  using Cause = JobMembership::Exit::Cause;
  CarryOut(membership_.OnExit(end.rank,
                              {.exit_code = ExitCodeOf(end),
                               .describe = DescribeEndAndError(end, Naming::kMember),
                               .cause = end.lost.empty() ? Cause::kItself : Cause::kLostHost},
                              now()));
}

void ElasticJob::OnTime() {
  if (is_over()) return;
  if (discovery_ != nullptr) discovery_->OnTime();
  if (options_.nodes != nullptr) options_.nodes->OnTime();
  for (const auto& [name, agent] : agents_) agent->OnTime();
  if (now() >= membership_.deadline()) CarryOut(membership_.OnTime(now()));
}

absl::Time ElasticJob::deadline() const {
  if (is_over()) return absl::InfiniteFuture();
  absl::Time earliest = membership_.deadline();
  if (discovery_ != nullptr) earliest = std::min(earliest, discovery_->deadline());
  if (options_.nodes != nullptr) earliest = std::min(earliest, options_.nodes->deadline());
  for (const auto& [name, agent] : agents_) earliest = std::min(earliest, agent->deadline());
  return earliest;
}

void ElasticJob::Stop(absl::string_view why) {
  if (is_over()) return;
  is_stopped_ = true;
  TellEnd(why);
}

// -- Actions --

void ElasticJob::CarryOut(const JobMembership::Actions& actions) {
  AnnounceEpoch(actions);
  for (const JobMembership::Action& action : actions) {
    std::visit([this](const auto& what) { Do(what); }, action);
    // An action that fails may cause further actions. If those have ended the job, the remaining actions are dropped.
    if (is_over() && !std::holds_alternative<JobMembership::EndJob>(actions.back())) return;
  }
}

void ElasticJob::AnnounceEpoch(const JobMembership::Actions& actions) {
  std::vector<int> members;
  int64_t epoch = 0;
  for (const JobMembership::Action& action : actions) {
    const auto* send = std::get_if<JobMembership::SendMessage>(&action);
    const auto* place = send == nullptr ? nullptr : std::get_if<EpochPlace>(&send->message);
    if (place == nullptr) continue;
    members.push_back(send->member);
    epoch = place->epoch;
  }
  if (epoch > 0) Say(absl::StrCat("epoch ", epoch, " begins with ", NameMembers(members)));
}

MemberHost* ElasticJob::FindHost(const std::string& name) {
  if (processes_ != nullptr) return processes_.get();
  std::unique_ptr<AgentHost>& agent = agents_[name];
  HostListener* const self = this;
  if (agent == nullptr) agent = std::make_unique<AgentHost>(options_.describe_host(name), supervision_, self);
  return agent.get();
}

void ElasticJob::Do(const JobMembership::StartMember& start) {
  const bool is_first_time = membership_.epoch() < 0;
  MemberHost* const host = FindHost(start.host);
  members_[start.member] = {.host = host, .host_name = start.host};
  const absl::Status status = host->Start(start);
  if (status.ok()) {
    const std::string where = processes_ == nullptr ? absl::StrCat(" on host ", start.host) : "";
    const std::string text = absl::StrCat(Name(start.member), " is started", where);
    is_first_time ? supervision_.listener->Explain(text) : Say(text);
    return;
  }
  if (is_first_time) {
    members_.erase(start.member);
    return GiveUp(ExitCodeOf(status), status.message());
  }
  OnNotStarted(start.member, ExitCodeOf(status), absl::StrCat("could not be started: ", status.message()));
}

void ElasticJob::Do(const JobMembership::SendMessage& send) {
  const auto found = members_.find(send.member);
  if (found != members_.end()) found->second.host->Send(send.member, Encode(send.message));
}

void ElasticJob::Do(const JobMembership::KillMember& kill) {
  Signal(kill.member, SIGKILL, absl::StrCat(kill.why, "; killing it (SIGKILL)"));
}

void ElasticJob::Do(const JobMembership::AskToLeave& ask) { Signal(ask.member, SIGTERM, ask.why); }

void ElasticJob::Signal(int member, int signo, absl::string_view why) {
  const auto found = members_.find(member);
  if (found == members_.end()) return;
  const std::string pid = found->second.pid == 0 ? "" : absl::StrCat("pid ", found->second.pid, ", ");
  Say(absl::StrCat(Name(member), " (", pid, "host ", found->second.host_name, ") ", why));
  found->second.host->Signal(member, signo);
}

void ElasticJob::Do(const JobMembership::EndJob& end) {
  TellEnd(end.why);
  supervision_.end(end.exit_code, end.why);
}

void ElasticJob::TellEnd(absl::string_view why) {
  // A failed Send() does no harm: a member that misses the notice still receives a signal.
  const std::string text = Encode(EndNotice{.reason = std::string(why)});
  for (const auto& [id, member] : members_) member.host->Send(id, text);
}

void ElasticJob::GiveUp(int exit_code, absl::string_view why) {
  is_stopped_ = true;
  TellEnd(why);
  supervision_.end(exit_code, std::string(why));
}

// -- Events --

void ElasticJob::OnMessage(int member, absl::string_view text) {
  if (is_over()) return;
  const auto message = DecodeMemberMessage(text);
  if (!message.ok()) return OnMisbehaviour(member, absl::StrCat("has sent nonsense: ", message.status().message()));
  CarryOut(membership_.OnMessage(member, *message, now()));
}

void ElasticJob::OnMisbehaviour(int member, absl::string_view why) {
  if (!is_over()) CarryOut(membership_.OnMisbehaviour(member, why, now()));
}

void ElasticJob::OnMotion(int member, Motion motion) {
  if (is_over()) return;
  CarryOut(motion == Motion::kStopped ? membership_.OnStop(member, now()) : membership_.OnContinue(member, now()));
}

void ElasticJob::OnNotStarted(int member, int exit_code, absl::string_view why) {
  members_.erase(member);
  if (is_over()) return;
  Say(absl::StrCat(Name(member), " ", why));
  CarryOut(membership_.OnExit(member, {.exit_code = exit_code, .describe = std::string(why)}, now()));
}

void ElasticJob::OnMeetingPoint(const std::string& host, const JobMembership::MeetingPoint& point) {
  membership_.SetMeetingPoint(host, point);
}

void ElasticJob::OnHostLost(const std::string& host, absl::string_view why) {
  if (is_over()) return;
  std::vector<int> lost;
  for (const auto& [id, member] : members_) {
    if (member.host_name == host) lost.push_back(id);
  }
  const std::string with = lost.empty() ? "" : absl::StrCat(" with ", NameMembers(lost));
  Say(absl::StrCat("host ", host, " is lost", with, ": ", why));
  CarryOut(membership_.OnHostLost(host, now()));
  if (options_.nodes != nullptr) options_.nodes->OnLost(host);
}

void ElasticJob::OnHosts(const std::vector<JobMembership::Host>& hosts) {
  if (!is_over()) CarryOut(membership_.OnHosts(hosts, now()));
}

// A lost node does not come back: if a node of the same name connects, it is a new node with its own address. So remove
// the agent of the old node.
void ElasticJob::OnNodes(const std::vector<JobMembership::Host>& hosts) {
  std::erase_if(agents_, [&](const auto& agent) {
    const bool is_listed = std::any_of(hosts.begin(), hosts.end(),
                                       [&](const JobMembership::Host& host) { return host.name == agent.first; });
    return !is_listed && !agent.second->is_connected();
  });
  OnHosts(hosts);
}

// A shortage of nodes ends the job only before its first epoch. Later, JobMembership itself waits for members.
void ElasticJob::OnTooFewNodes(const std::string& what) {
  if (!is_over() && membership_.epoch() < 0) GiveUp(1, what);
}

}  // namespace ronda
