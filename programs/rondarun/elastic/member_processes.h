// SPDX-License-Identifier: Apache-2.0

// The interface through which an elastic job controls the members on a host, and its implementation for this host.
// Members on this host are processes of this launcher or agent.
#ifndef RONDA_PROGRAMS_RONDARUN_ELASTIC_MEMBER_PROCESSES_H_
#define RONDA_PROGRAMS_RONDARUN_ELASTIC_MEMBER_PROCESSES_H_

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "programs/rondarun/membership/membership.h"
#include "programs/rondarun/supervise/child_process.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/members.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A host where members run: this host (MemberProcesses), or a host with an agent (AgentHost).
class MemberHost {
 public:
  virtual ~MemberHost() = default;

  // Starts a process as this member. Errors: those of JobPart::Start. On a host with an agent, the agent reports these
  // errors later.
  virtual absl::Status Start(const JobMembership::StartMember& start) = 0;

  // Sends an encoded LauncherMessage. Does nothing if the member has ended.
  virtual void Send(int member, absl::string_view text) = 0;
  virtual void Signal(int member, int signo) = 0;
};

// Makes a member's process inherit the socket to its launcher, and tells the process the socket's number.
void GiveMembership(int membership_fd, ChildProcess::Options* process);

// Owns the processes of members on this host, and the launcher's or agent's end of each member's socket.
//
// Thread-compatible; owned by the SupervisedMembers of a Supervisor.
class MemberProcesses final : public MemberHost {
 public:
  // Returns a process for the member. The process must inherit the descriptor `membership_fd` under the same number.
  using MakeMember =
      std::function<std::unique_ptr<JobPart>(const JobMembership::StartMember& start, int membership_fd)>;

  // `listener` must outlive this object.
  MemberProcesses(MakeMember make_member, MemberSupervision supervision, MemberListener* listener)
      : make_member_(std::move(make_member)), supervision_(std::move(supervision)), listener_(listener) {}

  absl::Status Start(const JobMembership::StartMember& start) override;
  void Send(int member, absl::string_view text) override;
  void Signal(int member, int signo) override;

  // Adds the members' sockets to `poll`, so that the caller wakes up when a member sends a message.
  void AddTo(PollSet* poll);

  // Must be called when any child of this process has stopped, continued or ended.
  void OnChildSignal();

  // Must be called when a member's process has ended. Passes the member's last messages to the listener, except for
  // requests to join.
  void OnEnd(int member);

 private:
  struct Member {
    UniqueFd socket;          // closed if the member has closed its end
    JobPart* part = nullptr;  // not owned; runs
  };

  // Receives a message from the member, if one has arrived.
  void Receive(int member);

  const MakeMember make_member_;
  const MemberSupervision supervision_;
  MemberListener* const listener_;
  std::map<int, Member> members_;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_ELASTIC_MEMBER_PROCESSES_H_
