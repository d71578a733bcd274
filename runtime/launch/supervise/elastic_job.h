#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_ELASTIC_JOB_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_ELASTIC_JOB_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"
#include "runtime/base/unique_fd.h"
#include "runtime/elastic/membership.h"
#include "runtime/launch/supervise/job_part.h"
#include "runtime/launch/supervise/poll_set.h"
#include "runtime/launch/supervise/verdict.h"

namespace ronda {

// The members of an elastic job on this host: carries out what JobMembership decides, and tells it what happens. Each
// member is a process with a socket to this one.
//
// Thread-compatible; belongs to a Supervisor.
class ElasticJob {
 public:
  // Makes the process of a member, which is to inherit `membership_fd` under its number. A member is known by its
  // number to the listener: as its RankId.
  using MakeMember = std::function<std::unique_ptr<JobPart>(int member, int slot, int membership_fd)>;

  struct Options {
    JobMembership::Options membership;
    MakeMember make_member;
  };

  // What the supervisor does for it.
  struct Supervision {
    // Takes the part over, and starts it. Errors: as JobPart::Start.
    std::function<absl::Status(std::unique_ptr<JobPart>)> start;
    // The job has come to its end: `why` is empty if that is a good one.
    std::function<void(int exit_code, const std::string& why)> end;
    JobListener* listener = nullptr;
    const Clock* clock = nullptr;
  };

  ElasticJob(Options options, Supervision supervision);

  // Starts the first members.
  void Begin();

  // Waits for the messages of the members.
  void AddTo(PollSet* poll);

  // A child of this process has stopped, goes on, or has ended.
  void OnChildSignal();

  // The process of a member has ended.
  void OnEnd(const RankEnd& end);

  // To be called when `deadline` has come; too early does no harm.
  void OnTime();
  absl::Time deadline() const { return is_over() ? absl::InfiniteFuture() : membership_.deadline(); }

  // The user has ended the job: tells all members that there will be no further epoch.
  void Stop(absl::string_view why);

  // No member will be started any more.
  bool is_over() const { return is_stopped_ || membership_.is_over(); }

 private:
  struct Member {
    UniqueFd socket;          // closed if the member has closed its end
    JobPart* part = nullptr;  // not owned; runs
  };

  void CarryOut(const JobMembership::Actions& actions);
  void Do(const JobMembership::StartMember& start);
  void Do(const JobMembership::SendMessage& send);
  void Do(const JobMembership::KillMember& kill);
  void Do(const JobMembership::EndJob& end);
  void AnnounceEpoch(const JobMembership::Actions& actions);

  // Starts the process of a new member.
  absl::Status StartProcess(int member, int slot);

  // Reads one message of the member, if there is one.
  void Receive(int member);
  void Misbehaves(int member, absl::string_view why);
  void TellEnd(absl::string_view why);
  absl::Time now() const { return supervision_.clock->Now(); }

  const Options options_;
  const Supervision supervision_;
  JobMembership membership_;
  std::map<int, Member> members_;
  bool is_stopped_ = false;
};

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_ELASTIC_JOB_H_
