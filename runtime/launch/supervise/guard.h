// Leaves nothing of a job behind, however it ends: processes, orphans of helpers, shared memory.
#ifndef RONDA_RUNTIME_LAUNCH_SUPERVISE_GUARD_H_
#define RONDA_RUNTIME_LAUNCH_SUPERVISE_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/base/unique_fd.h"

namespace ronda {

// A small process that outlives the launcher if that is killed, and then ends the rest of the job: every process group
// that it was told of, all other processes that the job has started, and the job's shared memory.
//
// A process that a rank starts may make a group or a session of its own. It is known by RONDA_LAUNCH in the environment
// that it was started with; only a process that was started with an emptied environment escapes.
//
// The kernel kills the ranks themselves when their launcher dies (PR_SET_PDEATHSIG), but not the processes that the
// ranks have started. The guard notices by the end of a pipe that only the launcher holds open; it has a session of its
// own, so that neither the terminal nor a signal to the launcher's group reaches it.
//
// A helper that ends processes of its own, such as mpirun, is given some time for that before it is killed.
//
// Thread-compatible; to be started by a single-threaded process.
class Guard {
 public:
  // Errors: the system's.
  static absl::StatusOr<std::unique_ptr<Guard>> Start(const std::string& job_id);

  // Ends the guard, and waits for it. Groups that were not released are killed, and all that has the launcher's marks.
  ~Guard();

  // How long a group may live on.
  enum class Patience { kNone, kSome };

  // From now on `group` dies with the launcher. Async-signal-safe: a rank calls it between fork and exec, so that
  // no moment is left in which it has started something the guard does not know of.
  void Watch(pid_t group, Patience patience) const;

  // The process that watches.
  pid_t pid() const { return pid_; }

  // Before a mark, in the environment.
  static constexpr absl::string_view kVariable = "RONDA_LAUNCH=";

  // A value of RONDA_LAUNCH, for a process that the launcher starts and all that come from it; each differs.
  std::string NewMark() const;

  // `group` is over; its number may soon belong to another process.
  void Release(pid_t group) const;

 private:
  Guard(std::string token, pid_t pid, UniqueFd pipe);

  const std::string token_;  // begins the marks of this launcher
  mutable int marks_ = 0;
  const pid_t pid_;
  UniqueFd pipe_;
};

// Kills the processes of this user whose RONDA_LAUNCH begins with one of the marks, and returns when they are gone, at
// the latest after some seconds.
void KillMarked(const std::vector<std::string>& marks);

// Removes the shared memory that dead ranks of the job left in ShmFolders(): every ronda-<job id>*. An empty `job_id`
// is unknown, and nothing is removed. REQUIRES: `job_id` is as long as all others, so that it is no prefix of another
// job's.
void RemoveSharedMemoryLeftovers(const std::string& job_id);

}  // namespace ronda

#endif  // RONDA_RUNTIME_LAUNCH_SUPERVISE_GUARD_H_
