// SPDX-License-Identifier: Apache-2.0

// The interfaces between a Supervisor's loop and the members of the elastic job that the Supervisor runs.
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

// Functions of a supervisor that the members of its job use.
struct MemberSupervision {
  // Takes ownership of the part, and starts its process. Errors: those of JobPart::Start.
  std::function<absl::Status(std::unique_ptr<JobPart>)> start;
  // Called when the signal `signo` has stopped a member's process. Returns whether the signal stopped the process
  // because it reads the terminal. A member that was stopped because it reads the terminal does not hang, and the
  // supervisor lets its process continue.
  std::function<bool(pid_t pid, int signo)> reads_terminal;
  // Called when the job has ended. `why` is empty if the job was successful.
  std::function<void(int exit_code, const std::string& why)> end;
  JobListener* listener = nullptr;
  const Clock* clock = nullptr;
};

// The members of an elastic job that this launcher or agent supervises. Members come and go while their supervisor
// runs. The supervisor's loop calls these functions. For the JobListener, a member's number is its RankId.
class SupervisedMembers {
 public:
  virtual ~SupervisedMembers() = default;

  // The loop calls Begin when it begins.
  virtual void Begin() = 0;

  // Adds the descriptors on which messages come from members, and from programs that report about members.
  virtual void AddTo(PollSet* poll) = 0;

  // The loop calls this function when a child of this process was stopped, continues, or has ended.
  virtual void OnChildSignal() = 0;

  virtual void OnStart(RankId member, pid_t pid) = 0;
  virtual void OnEnd(const RankEnd& end) = 0;

  // The supervisor must call OnTime at deadline(), and may call it earlier.
  virtual void OnTime() = 0;
  virtual absl::Time deadline() const = 0;

  // Starts no more members, because the user or the launcher has ended the job.
  virtual void Stop(absl::string_view why) = 0;

  // Returns whether the supervisor may end when no process runs.
  virtual bool is_over() const = 0;
};

// Receives the events of members on a host.
class MemberListener {
 public:
  virtual ~MemberListener() = default;

  // `text` is a message of the member. `text` may be invalid as a MemberMessage.
  virtual void OnMessage(int member, absl::string_view text) = 0;
  // The member lives, but no message can reach it. `why` completes a sentence that begins "member 3 ".
  virtual void OnMisbehaviour(int member, absl::string_view why) = 0;
  // The process of the member was stopped (SIGSTOP), or it continues.
  enum class Motion { kStopped, kGoesOn };
  virtual void OnMotion(int member, Motion motion) = 0;
};

}  // namespace ronda

#endif  // RONDA_PROGRAMS_RONDARUN_SUPERVISE_MEMBERS_H_
