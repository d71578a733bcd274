#include "runtime/launch/supervise/elastic_job.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status_macros.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {
namespace {

std::string Name(int member) { return absl::StrCat("member ", member); }

// "member 3", "members 1, 3".
std::string NameMembers(const std::vector<int>& members) {
  return absl::StrCat(members.size() == 1 ? "member " : "members ", absl::StrJoin(members, ", "));
}

// Of the last words of a member that has ended, these alone still matter.
bool HasAskedToLeave(const UniqueFd& socket) {
  bool has_asked = false;
  while (socket.valid()) {
    const auto text = ReceiveMembershipMessage(socket.get());
    if (!text.ok() || text->empty()) break;
    const auto message = DecodeMemberMessage(*text);
    has_asked = has_asked || (message.ok() && std::holds_alternative<LeaveRequest>(*message));
  }
  return has_asked;
}

bool HasEnded(const JobPart& part) {
  pollfd request = {.fd = part.process().pidfd(), .events = POLLIN, .revents = 0};
  return poll(&request, 1, 0) == 1;
}

}  // namespace

ElasticJob::ElasticJob(Options options, Supervision supervision)
    : options_(std::move(options)), supervision_(std::move(supervision)), membership_(options_.membership) {}

void ElasticJob::Begin() { CarryOut(membership_.Begin(now())); }

void ElasticJob::AddTo(PollSet* poll) {
  for (const auto& [id, member] : members_) {
    if (member.socket.valid()) poll->Add(member.socket.get(), POLLIN, [this, id = id] { Receive(id); });
  }
}

void ElasticJob::OnChildSignal() {
  // Actions can end the iteration's members, but not remove them: that is for OnEnd.
  for (const auto& [id, member] : members_) {
    siginfo_t info = {};
    const auto pidfd = static_cast<id_t>(member.part->process().pidfd());
    while (waitid(P_PIDFD, pidfd, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 && info.si_pid != 0) {
      const bool is_stopped = info.si_code == CLD_STOPPED;
      if (!is_stopped_) {
        CarryOut(is_stopped ? membership_.OnStop(id, now()) : membership_.OnContinue(id, now()));
      }
      info = {};
    }
  }
}

void ElasticJob::OnEnd(const RankEnd& end) {
  const auto found = members_.find(end.rank);
  if (found == members_.end()) return;
  const UniqueFd socket = std::move(found->second.socket);
  members_.erase(found);
  if (is_over()) return;
  if (HasAskedToLeave(socket)) CarryOut(membership_.OnMessage(end.rank, LeaveRequest{}, now()));
  CarryOut(membership_.OnExit(end.rank, {.exit_code = ExitCodeOf(end), .describe = DescribeEnd(end)}, now()));
}

void ElasticJob::OnTime() {
  if (now() >= deadline()) CarryOut(membership_.OnTime(now()));
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
    // What cannot be done has consequences of its own, and these may end the job.
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
  if (epoch > 0) supervision_.listener->Say(absl::StrCat("epoch ", epoch, " begins with ", NameMembers(members)));
}

void ElasticJob::Do(const JobMembership::StartMember& start) {
  const bool is_first_time = membership_.epoch() < 0;
  const absl::Status status = StartProcess(start.member, start.slot);
  if (status.ok()) {
    const std::string text = absl::StrCat(Name(start.member), " is started");
    is_first_time ? supervision_.listener->Explain(text) : supervision_.listener->Say(text);
    return;
  }
  if (is_first_time) {
    is_stopped_ = true;
    TellEnd(status.message());
    supervision_.end(ExitCodeOf(status), std::string(status.message()));
    return;
  }
  const std::string what = absl::StrCat("could not be started: ", status.message());
  supervision_.listener->Say(absl::StrCat(Name(start.member), " ", what));
  CarryOut(membership_.OnExit(start.member, {.exit_code = ExitCodeOf(status), .describe = what}, now()));
}

absl::Status ElasticJob::StartProcess(int member, int slot) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "cannot create a socket for it");
  }
  UniqueFd own(ends[0]);
  const UniqueFd members(ends[1]);
  std::unique_ptr<JobPart> part = options_.make_member(member, slot, members.get());
  JobPart* const started = part.get();
  RONDA_RETURN_IF_ERROR(supervision_.start(std::move(part)));
  members_[member] = {.socket = std::move(own), .part = started};
  return absl::OkStatus();
}

void ElasticJob::Do(const JobMembership::SendMessage& send) {
  const auto found = members_.find(send.member);
  if (found == members_.end()) return;
  const Member& member = found->second;
  const absl::Status sent = member.socket.valid() ? SendMembershipMessage(member.socket.get(), Encode(send.message))
                                                  : absl::UnavailableError("it has closed its socket");
  // The end of a process that has ended is told on its own.
  if (!sent.ok() && !HasEnded(*member.part)) Misbehaves(send.member, absl::StrCat("cannot be told: ", sent.message()));
}

void ElasticJob::Do(const JobMembership::KillMember& kill) {
  const auto found = members_.find(kill.member);
  if (found == members_.end() || !found->second.part->running()) return;
  supervision_.listener->Say(absl::StrCat(Name(kill.member), " (pid ", found->second.part->process().pid(), ") ",
                                          kill.why, "; killing it (SIGKILL)"));
  found->second.part->Signal(SIGKILL);
}

void ElasticJob::Do(const JobMembership::EndJob& end) {
  TellEnd(end.why);
  supervision_.end(end.exit_code, end.why);
}

void ElasticJob::TellEnd(absl::string_view why) {
  // A member that does not hear it gets a signal anyway.
  for (const auto& [id, member] : members_) {
    if (member.socket.valid()) {
      (void)SendMembershipMessage(member.socket.get(), Encode(EndNotice{.reason = std::string(why)}));
    }
  }
}

// -- Messages --

void ElasticJob::Receive(int id) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.socket.valid()) return;
  const absl::StatusOr<std::string> text = ReceiveMembershipMessage(found->second.socket.get());
  if (absl::IsUnavailable(text.status())) {
    // It may have no more to say, and it may have ended.
    found->second.socket.Reset();
    return;
  }
  if (text.ok() && text->empty()) return;
  if (is_over()) return;
  const auto message = text.ok() ? DecodeMemberMessage(*text) : text.status();
  if (message.ok()) {
    CarryOut(membership_.OnMessage(id, *message, now()));
  } else {
    Misbehaves(id, absl::StrCat("has sent nonsense: ", message.status().message()));
  }
}

void ElasticJob::Misbehaves(int member, absl::string_view why) {
  if (!is_over()) CarryOut(membership_.OnMisbehaviour(member, why, now()));
}

}  // namespace ronda
