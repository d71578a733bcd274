// SPDX-License-Identifier: Apache-2.0

// The interfaces between a Supervisor's loop and the members of an elastic job that it runs.
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

// A supervisor's services for the members of its job.
struct MemberSupervision {
  // Takes ownership of the part, and starts it. Errors: as JobPart::Start.
  std::function<absl::Status(std::unique_ptr<JobPart>)> start;
  // A member's process was stopped by this signal. Returns whether the process was stopped because it reads the
  // terminal. In this case the member does not hang, and the supervisor lets it go on.
  std::function<bool(pid_t pid, int signo)> reads_terminal;
  // The job has ended; `why` is empty if it has ended well.
  std::function<void(int exit_code, const std::string& why)> end;
  JobListener* listener = nullptr;
  const Clock* clock = nullptr;
};

// The members of an elastic job that this launcher, or this agent, looks after. They come and go while their supervisor
// runs; its loop calls this interface. The listener knows a member by its number, as its RankId.
class SupervisedMembers {
 public:
  virtual ~SupervisedMembers() = default;

  // The supervisor's loop begins.
  virtual void Begin() = 0;

  // Adds the descriptors on which members, and programs that report about them, send messages.
  virtual void AddTo(PollSet* poll) = 0;

  // A child of this process has stopped, goes on, or has ended.
  virtual void OnChildSignal() = 0;

  virtual void OnStart(RankId member, pid_t pid) = 0;
  virtual void OnEnd(const RankEnd& end) = 0;

  // Must be called at `deadline`. It may also be called earlier.
  virtual void OnTime() = 0;
  virtual absl::Time deadline() const = 0;

  // The job is ended from outside, so no more members are started.
  virtual void Stop(absl::string_view why) = 0;

  // Whether the supervisor may end when no process runs.
  virtual bool is_over() const = 0;
};

// Receives the events of members on a host.
class MemberListener {
 public:
  virtual ~MemberListener() = default;

  // `text` is a message as the member has sent it. It may be no valid MemberMessage.
  virtual void OnMessage(int member, absl::string_view text) = 0;
  // The member lives, but no message can reach it. `why` completes a sentence that begins "member 3 ".
  virtual void OnMisbehaviour(int member, absl::string_view why) = 0;
  // The process of the member was stopped (SIGSTOP), or goes on.
  enum class Motion { kStopped, kGoesOn };
  virtual void OnMotion(int member, Motion motion) = 0;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_MEMBERS_H_
