// Hosts of members, as an elastic job sees them; and this host, whose members are processes of ours.
#ifndef RONDA_RUNTIME_LAUNCH_ELASTIC_MEMBER_PROCESSES_H_
#define RONDA_RUNTIME_LAUNCH_ELASTIC_MEMBER_PROCESSES_H_

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"
#include "runtime/elastic/membership.h"
#include "runtime/launch/supervise/child_process.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/launch/supervise/members.h"
#include "runtime/launch/supervise/poll_set.h"

namespace ronda {

// A host where members run: this one (MemberProcesses), or another one behind an agent (AgentHost).
class MemberHost {
 public:
  virtual ~MemberHost() = default;

  // Starts a process as this member.
  // Errors: as JobPart::Start. An agent tells them later.
  virtual absl::Status Start(const JobMembership::StartMember& start) = 0;

  // Sends an encoded LauncherMessage. Nothing happens for a member that has ended.
  virtual void Send(int member, absl::string_view text) = 0;
  virtual void Signal(int member, int signo) = 0;
};

// Has the process of a member inherit the socket to its launcher, and know its number.
void GiveMembership(int membership_fd, ChildProcess::Options* process);

// The processes of members on this host, and this process' ends of their sockets.
//
// Thread-compatible; belongs to the Members of a Supervisor.
class MemberProcesses final : public MemberHost {
 public:
  // Makes the process of a member, which is to inherit `membership_fd` under its number.
  using MakeMember =
      std::function<std::unique_ptr<JobPart>(const JobMembership::StartMember& start, int membership_fd)>;
  using StartPart = std::function<absl::Status(std::unique_ptr<JobPart>)>;

  // `start_part` takes a part over and starts it, as MemberSupervision::start. `listener` outlives this.
  MemberProcesses(MakeMember make_member, StartPart start_part, MemberListener* listener)
      : make_member_(std::move(make_member)), start_part_(std::move(start_part)), listener_(listener) {}

  absl::Status Start(const JobMembership::StartMember& start) override;
  void Send(int member, absl::string_view text) override;
  void Signal(int member, int signo) override;

  // Waits for the messages of the members.
  void AddTo(PollSet* poll);

  // A child of this process has stopped, goes on, or has ended.
  void OnChildSignal();

  // The process of the member has ended: the listener hears its last words, but for a wish for a place.
  void OnEnd(int member);

 private:
  struct Member {
    UniqueFd socket;          // closed if the member has closed its end
    JobPart* part = nullptr;  // not owned; runs
  };

  // Reads one message of the member, if there is one.
  void Receive(int member);

  const MakeMember make_member_;
  const StartPart start_part_;
  MemberListener* const listener_;
  std::map<int, Member> members_;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_ELASTIC_MEMBER_PROCESSES_H_
