// SPDX-License-Identifier: Apache-2.0

#include "programs/rondarun/elastic/agent_members.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "programs/options/local_host.h"
#include "runtime/base/clock.h"

namespace ronda {
namespace {

using Kind = AgentMessage::Kind;

// The name of a job's agent on a host. Only one process at a time can have it, because it is the name of a Unix socket
// (without a file).
struct AgentName {
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  socklen_t size = 0;

  AgentName(const std::string& job_id, const std::string& host) {
    const std::string name = absl::StrCat("ronda-", job_id, ".agent.", host).substr(0, sizeof(address.sun_path) - 1);
    std::copy(name.begin(), name.end(), address.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// Returns the pid of the agent with this name, or 0 if there is none.
pid_t HolderOf(const AgentName& name) {
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (connect(socket.get(), name.get(), name.size) != 0) return 0;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return 0;
  return credentials.pid;
}

}  // namespace

AgentMembers::AgentMembers(Options options, MemberSupervision supervision)
    : options_(std::move(options)),
      supervision_(std::move(supervision)),
      processes_(options_.make_member, supervision_, this),
      last_heard_(now()),
      next_sign_(now()) {}

void AgentMembers::Begin() {
  for (const AgentMessage& message : options_.first_messages) Receive(message);
}

void AgentMembers::Receive(const AgentMessage& message) {
  last_heard_ = now();
  const int member = static_cast<int>(message.number(0));
  if (message.kind == Kind::kMember) {
    Start(
        {.member = member, .slot = static_cast<int>(message.number(1)), .slots = static_cast<int>(message.number(2))});
  } else if (message.kind == Kind::kMemberMessage) {
    processes_.Send(member, message.text(0));
  } else if (message.kind == Kind::kMemberSignal) {
    processes_.Signal(member, static_cast<int>(message.number(1)));
  }
}

void AgentMembers::Start(const JobMembership::StartMember& start) {
  const absl::Status status = processes_.Start(start);
  if (status.ok()) return;
  options_.send({.kind = Kind::kNotStarted,
                 .numbers = {start.member, ExitCodeOf(status)},
                 .texts = {absl::StrCat("could not be started: ", status.message())}});
}

void AgentMembers::OnTime() {
  // The agent keeps sending heartbeats while members that were asked to end are still running.
  if (is_forsaken_ || now() < next_sign_) return;
  next_sign_ = now() + options_.signs.period;
  options_.send({.kind = Kind::kAlive, .numbers = {}, .texts = {}});
  if (is_over_ || now() - last_heard_ < options_.signs.timeout) return;
  is_over_ = is_forsaken_ = true;
  supervision_.end(1, "the launcher has given no sign of life");
}

void AgentMembers::OnMessage(int member, absl::string_view text) {
  options_.send(
      {.kind = Kind::kMemberMessage, .numbers = {member, FindFreePorts(1).front()}, .texts = {std::string(text)}});
}

void AgentMembers::OnMisbehaviour(int member, absl::string_view why) {
  options_.send({.kind = Kind::kMisbehaviour, .numbers = {member}, .texts = {std::string(why)}});
}

void AgentMembers::OnMotion(int member, Motion motion) {
  options_.send({.kind = Kind::kMotion, .numbers = {member, motion == Motion::kStopped ? 1 : 0}, .texts = {}});
}

absl::StatusOr<UniqueFd> BecomeAgent(const std::string& job_id, const std::string& host) {
  constexpr absl::Duration kTimeout = absl::Seconds(10);
  constexpr absl::Duration kPause = absl::Milliseconds(10);
  const AgentName name(job_id, host);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  for (const absl::Duration deadline = MonotonicTime() + kTimeout; MonotonicTime() < deadline; absl::SleepFor(kPause)) {
    if (bind(socket.get(), name.get(), name.size) == 0 && listen(socket.get(), 1) == 0) return socket;
    if (errno != EADDRINUSE) return absl::ErrnoToStatus(errno, "cannot take the agent's name");
    if (const pid_t holder = HolderOf(name); holder > 0) kill(holder, SIGKILL);
  }
  return absl::DeadlineExceededError("another agent of the job on this host does not end");
}

}  // namespace ronda
