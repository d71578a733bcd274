// SPDX-License-Identifier: Apache-2.0

// The interfaces between a Supervisor's loop and the members of the elastic job that it runs.
#ifndef RONDA_PROGRAMS_RONDARUN_SUPERVISE_MEMBERS_H_
#define RONDA_PROGRAMS_RONDARUN_SUPERVISE_MEMBERS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "programs/rondarun/supervise/job_part.h"
#include "programs/rondarun/supervise/poll_set.h"
#include "programs/rondarun/supervise/verdict.h"
#include "runtime/base/clock.h"
#include "runtime/base/types.h"

namespace ronda {

// The functions of a supervisor that the members of its job use.
struct MemberSupervision {
  // Takes ownership of the part and starts its process. Errors: those of JobPart::Start.
  std::function<absl::Status(std::unique_ptr<JobPart>)> start;
  // Called when the signal `signo` has stopped a member's process. Returns whether the process was stopped because it
  // reads the terminal. If so, the member does not hang, and the supervisor lets its process continue.
  std::function<bool(pid_t pid, int signo)> reads_terminal;
  // Called when the job has ended. `why` is empty if the job was successful.
  std::function<void(int exit_code, const std::string& why)> end;
  JobListener* listener = nullptr;
  const Clock* clock = nullptr;
};

// The members of an elastic job that this launcher or agent supervises. Members come and go while the supervisor is
// running. The supervisor's loop calls these functions. To the JobListener, a member's number is its RankId.
class SupervisedMembers {
 public:
  virtual ~SupervisedMembers() = default;

  // Called when the loop starts.
  virtual void Begin() = 0;

  // Adds the descriptors on which messages arrive from members, and from programs that report about members.
  virtual void AddTo(PollSet* poll) = 0;

  // Called when a child of this process has stopped, continued or ended.
  virtual void OnChildSignal() = 0;

  virtual void OnStart(RankId member, pid_t pid) = 0;
  virtual void OnEnd(const RankEnd& end) = 0;

  // Must be called at deadline(), and may be called earlier.
  virtual void OnTime() = 0;
  virtual absl::Time deadline() const = 0;

  // Starts no more members, because the user or the launcher has ended the job.
  virtual void Stop(absl::string_view why) = 0;

  // Returns whether the supervisor may end once no process is running.
  virtual bool is_over() const = 0;
};

// Receives the events of members on a host.
class MemberListener {
 public:
  virtual ~MemberListener() = default;

  // `text` is a message from the member, and not necessarily a valid MemberMessage.
  virtual void OnMessage(int member, absl::string_view text) = 0;
  // The member is alive, but cannot receive messages. `why` completes a sentence that starts with "member 3 ".
  virtual void OnMisbehaviour(int member, absl::string_view why) = 0;
  // The process of the member has stopped (SIGSTOP) or continued.
  enum class Motion { kStopped, kGoesOn };
  virtual void OnMotion(int member, Motion motion) = 0;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_MEMBERS_H_
