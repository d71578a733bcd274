// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/member_processes.h"

#include <sys/socket.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/poll.h"
#include "runtime/base/status_macros.h"
#include "runtime/elastic/membership_message.h"

namespace ronda {
namespace {

// Returns the last messages of a member that has ended. Leaves out requests to join, because a dead process cannot
// join.
std::vector<std::string> FinalMessages(const UniqueFd& socket) {
  std::vector<std::string> words;
  while (socket.valid()) {
    const auto text = ReceiveMembershipMessage(socket.get());
    if (!text.ok() || text->empty()) break;
    const auto message = DecodeMemberMessage(*text);
    if (message.ok() && !std::holds_alternative<JoinRequest>(*message)) words.push_back(*text);
  }
  return words;
}

bool HasEnded(const JobPart& part) {
  pollfd request = {.fd = part.process().pidfd(), .events = POLLIN, .revents = 0};
  return PollDescriptors({&request, 1}, absl::ZeroDuration()).value_or(0) == 1;
}

}  // namespace

void GiveMembership(int membership_fd, ChildProcess::Options* process) {
  process->environment.push_back(absl::StrCat(kMembershipVariable.view(), "=", membership_fd));
  process->inherited_fds.push_back(membership_fd);
}

absl::Status MemberProcesses::Start(const JobMembership::StartMember& start) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "cannot create a socket for it (socketpair)");
  }
  UniqueFd own(ends[0]);
  const UniqueFd members(ends[1]);
  std::unique_ptr<JobPart> part = make_member_(start, members.get());
  JobPart* const started = part.get();
  RONDA_RETURN_IF_ERROR(supervision_.start(std::move(part)));
  members_[start.member] = {.socket = std::move(own), .part = started};
  return absl::OkStatus();
}

void MemberProcesses::Send(int id, absl::string_view text) {
  const auto found = members_.find(id);
  if (found == members_.end()) return;
  const Member& member = found->second;
  const absl::Status sent = member.socket.valid() ? SendMembershipMessage(member.socket.get(), text)
                                                  : absl::UnavailableError("it has closed its socket");
  // If the process of the member has ended, a failed Send() is not misbehaviour. Its end is reported separately.
  if (!sent.ok() && !HasEnded(*member.part)) {
    listener_->OnMisbehaviour(id, absl::StrCat("cannot be told: ", sent.message()));
  }
}

void MemberProcesses::Signal(int id, int signo) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.part->running()) return;
  // SIGKILL goes to the whole process group. All other signals go only to the member's program, not to processes that
  // it has started.
  JobPart* const part = found->second.part;
  signo == SIGKILL ? part->Signal(signo) : part->process().SignalAlone(signo);
}

void MemberProcesses::AddTo(PollSet* poll) {
  for (const auto& [id, member] : members_) {
    if (member.socket.valid()) poll->Add(member.socket.get(), POLLIN, [this, id = id] { Receive(id); });
  }
}

void MemberProcesses::OnChildSignal() {
  // During this loop, the listener may start members or send signals to members. It cannot remove members, because only
  // OnEnd does so.
  for (const auto& [id, member] : members_) {
    const ChildProcess& process = member.part->process();
    while (const std::optional<int> signo = process.NextMotion()) {
      const bool is_stopped = *signo != SIGCONT;
      if (is_stopped && supervision_.reads_terminal(process.pid(), *signo)) continue;
      listener_->OnMotion(id, is_stopped ? MemberListener::Motion::kStopped : MemberListener::Motion::kGoesOn);
    }
  }
}

void MemberProcesses::OnEnd(int member) {
  const auto found = members_.find(member);
  if (found == members_.end()) return;
  const UniqueFd socket = std::move(found->second.socket);
  members_.erase(found);
  for (const std::string& text : FinalMessages(socket)) listener_->OnMessage(member, text);
}

void MemberProcesses::Receive(int id) {
  const auto found = members_.find(id);
  if (found == members_.end() || !found->second.socket.valid()) return;
  const absl::StatusOr<std::string> text = ReceiveMembershipMessage(found->second.socket.get());
  if (absl::IsUnavailable(text.status())) {
    // The member has closed the socket, because it has no more messages or has ended.
    found->second.socket.Reset();
  } else if (!text.ok()) {
    listener_->OnMisbehaviour(id, absl::StrCat("has sent nonsense: ", text.status().message()));
  } else if (!text->empty()) {
    listener_->OnMessage(id, *text);
  }
}

}  // namespace ronda
